package main

import (
	"context"
	"errors"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var producers = newNamed[rocketmq.Producer]("producer")

type producerArguments struct {
	Name              string `json:"name"`
	Group             string `json:"group"`
	Namesrv           string `json:"namesrv"`
	CompressAboveSize *int   `json:"compressAboveSize"`
	// For each attempt.
	SendTimeoutMs int `json:"sendTimeoutMs"`
	// The given queue of each send instead of round robin.
	ManualQueues bool `json:"manualQueues"`
	credentials
}

// credentials of the user in whose name everything is asked, if there are any.
type credentials struct {
	AccessKey     string `json:"accessKey"`
	SecretKey     string `json:"secretKey"`
	SecurityToken string `json:"securityToken"`
}

func (c credentials) user() primitive.Credentials {
	return primitive.Credentials{AccessKey: c.AccessKey, SecretKey: c.SecretKey, SecurityToken: c.SecurityToken}
}

func startProducer(arguments producerArguments) (any, error) {
	group := arguments.Group
	if group == "" {
		group = arguments.Name
	}
	options := []producer.Option{
		producer.WithNameServer(strings.Split(arguments.Namesrv, ";")),
		producer.WithGroupName(group),
		producer.WithInstanceName(instance(arguments.Name)),
		producer.WithRetry(2),
		producer.WithSendMsgTimeout(10 * time.Second), // as the Java driver, for the same reason
	}
	if arguments.SendTimeoutMs > 0 {
		options = append(options, producer.WithSendMsgTimeout(time.Duration(arguments.SendTimeoutMs)*time.Millisecond))
	}
	if arguments.CompressAboveSize != nil {
		options = append(options, producer.WithCompressMsgBodyOverHowmuch(*arguments.CompressAboveSize))
	}
	if arguments.AccessKey != "" {
		options = append(options, producer.WithCredentials(arguments.user()))
	}
	if arguments.ManualQueues {
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	return producers.start(arguments.Name, made, made.Start)
}

type sendArguments struct {
	Name     string      `json:"name"`
	Topic    string      `json:"topic"`
	Mode     string      `json:"mode"`
	Messages []outgoing  `json:"messages"`
	Queue    *queueValue `json:"queue"`
}

func send(arguments sendArguments) (any, error) {
	from, err := producers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	var messages []*primitive.Message
	for _, message := range arguments.Messages {
		messages = append(messages, message.message(arguments.Topic, arguments.Queue))
	}
	switch arguments.Mode {
	case "", "sync":
		return sendInTurn(from, messages), nil
	case "async":
		return sendTogether(from, messages)
	case "oneway":
		return results(), sendOneWay(from, messages)
	case "batch":
		result, err := from.SendSync(context.Background(), messages...)
		return results(sentValue(result, err)), nil
	}
	return nil, errors.New("mode is sync, async, oneway or batch")
}

func results(all ...map[string]any) map[string]any {
	return map[string]any{"results": all}
}

func sendInTurn(from rocketmq.Producer, messages []*primitive.Message) any {
	var all []map[string]any
	for _, message := range messages {
		all = append(all, sentValue(from.SendSync(context.Background(), message)))
	}
	return results(all...)
}

func sendTogether(from rocketmq.Producer, messages []*primitive.Message) (any, error) {
	type outcome struct {
		index int
		value map[string]any
	}
	outcomes := make(chan outcome, len(messages))
	for index, message := range messages {
		index := index // one variable for all turns before Go 1.22
		callback := func(_ context.Context, result *primitive.SendResult, err error) {
			outcomes <- outcome{index, sentValue(result, err)}
		}
		if err := from.SendAsync(context.Background(), callback, message); err != nil {
			return nil, err
		}
	}
	all := make([]map[string]any, len(messages))
	late := time.After(30 * time.Second)
	for range messages {
		select {
		case one := <-outcomes:
			all[one.index] = one.value
		case <-late:
			return nil, errors.New("an asynchronous send was not answered in 30 s")
		}
	}
	return results(all...), nil
}

func sendOneWay(from rocketmq.Producer, messages []*primitive.Message) error {
	for _, message := range messages {
		if err := from.SendOneWay(context.Background(), message); err != nil {
			return err
		}
	}
	return nil
}

type nameArguments struct {
	Name string `json:"name"`
}

func stopProducer(arguments nameArguments) (any, error) {
	stopped, err := producers.remove(arguments.Name)
	if err != nil {
		return nil, err
	}
	return nil, stopped.Shutdown()
}
