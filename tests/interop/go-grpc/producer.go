package main

import (
	"context"
	"sync"

	mq "github.com/apache/rocketmq-clients/golang/v5"
)

var producers = newNamed[*producing]("producer")

// producing is a producer, and what the broker has asked about.
type producing struct {
	producer mq.Producer
	asked    *deliveries
}

type producerArguments struct {
	clientArguments
	Topics []string `json:"topics"`
}

func startProducer(arguments producerArguments) (any, error) {
	asked := newDeliveries()
	// A message says itself what becomes of it when the broker asks: its property "checked".
	check := func(message *mq.MessageView) mq.TransactionResolution {
		asked.add(message)
		switch message.GetProperties()["checked"] {
		case "commit":
			return mq.COMMIT
		case "rollback":
			return mq.ROLLBACK
		}
		return mq.UNKNOWN
	}
	made, err := mq.NewProducer(
		arguments.config(),
		mq.WithTopics(arguments.Topics...),
		mq.WithTransactionChecker(&mq.TransactionChecker{Check: check}),
	)
	if err != nil {
		return nil, err
	}
	return producers.start(arguments.Name, &producing{made, asked}, made.Start)
}

type sendArguments struct {
	Name     string     `json:"name"`
	Topic    string     `json:"topic"`
	Mode     string     `json:"mode"`
	Messages []outgoing `json:"messages"`
}

func send(arguments sendArguments) (any, error) {
	from, err := producers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	all := make([]map[string]any, len(arguments.Messages))
	var answered sync.WaitGroup
	for index, fields := range arguments.Messages {
		message, err := fields.message(arguments.Topic)
		if err != nil {
			all[index] = receiptValue(nil, err)
			continue
		}
		if arguments.Mode != "async" {
			all[index] = sendOne(from.producer, message)
			continue
		}
		answered.Add(1)
		from.producer.SendAsync(context.Background(), message,
			func(_ context.Context, receipts []*mq.SendReceipt, err error) {
				all[index] = receiptValue(receipts, err)
				answered.Done()
			})
	}
	answered.Wait()
	return map[string]any{"results": all}, nil
}

// sendOne sends a message with the property "outcome" in a transaction, which ends so.
func sendOne(from mq.Producer, message *mq.Message) map[string]any {
	outcome, inTransaction := message.GetProperties()["outcome"]
	if !inTransaction {
		return receiptValue(from.Send(context.Background(), message))
	}
	transaction := from.BeginTransaction()
	receipts, err := from.SendWithTransaction(context.Background(), message, transaction)
	if err == nil && outcome == "commit" {
		err = transaction.Commit()
	}
	if err == nil && outcome == "rollback" {
		err = transaction.RollBack()
	}
	return receiptValue(receipts, err)
}

func checked(arguments waitArguments) (any, error) {
	from, err := producers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	return from.asked.wait(arguments)
}

type recallArguments struct {
	Name   string `json:"name"`
	Topic  string `json:"topic"`
	Handle string `json:"handle"`
}

func recall(arguments recallArguments) (any, error) {
	from, err := producers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	id, err := from.producer.Recall(context.Background(), arguments.Topic, arguments.Handle)
	if err != nil {
		return map[string]any{"error": failure(err)}, nil
	}
	return map[string]any{"messageId": id}, nil
}

type nameArguments struct {
	Name string `json:"name"`
}

func stopProducer(arguments nameArguments) (any, error) {
	stopped, err := producers.remove(arguments.Name)
	if err != nil {
		return nil, err
	}
	return nil, stopped.producer.GracefulStop()
}
