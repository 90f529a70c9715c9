package main

import (
	"context"
	"strings"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var participants = newNamed[rocketmq.TransactionProducer]("transaction")

// decider lets a message say what becomes of it: its property "outcome" when it was sent, "checked" when the broker asks.
type decider struct{}

func (decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(message.GetProperty("outcome"))
}

func (decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return state(message.GetProperty("checked"))
}

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func startTransactions(arguments producerArguments) (any, error) {
	made, err := rocketmq.NewTransactionProducer(
		decider{},
		producer.WithNameServer(strings.Split(arguments.Namesrv, ";")),
		producer.WithGroupName(arguments.Group),
		producer.WithInstanceName(instance(arguments.Name)),
		producer.WithRetry(2),
	)
	if err != nil {
		return nil, err
	}
	return participants.start(arguments.Name, made, made.Start)
}

func sendInTransaction(arguments sendArguments) (any, error) {
	from, err := participants.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	var all []map[string]any
	for _, message := range arguments.Messages {
		result, err := from.SendMessageInTransaction(context.Background(), message.message(arguments.Topic, nil))
		if err != nil {
			all = append(all, map[string]any{"error": failure(err)})
			continue
		}
		all = append(all, sentValue(result.SendResult, nil))
	}
	return results(all...), nil
}

func stopTransactions(arguments nameArguments) (any, error) {
	stopped, err := participants.remove(arguments.Name)
	if err != nil {
		return nil, err
	}
	return nil, stopped.Shutdown()
}
