package main

import (
	"context"
	"errors"
	"sync"
	"time"

	mq "github.com/apache/rocketmq-clients/golang/v5"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

var (
	pushConsumers   = newNamed[*pushing]("push consumer")
	simpleConsumers = newNamed[*holding]("simple consumer")
)

// pushing is a push consumer, and what its listener was handed.
type pushing struct {
	consumer mq.PushConsumer
	received *deliveries
}

type consumerArguments struct {
	clientArguments
	Subscriptions map[string]*wanted `json:"subscriptions"`
	// How often each message is refused.
	Failures int32 `json:"failures"`
	// How long the listener takes for the first delivery of each.
	HangMs  int64 `json:"hangMs"`
	Threads int32 `json:"threads"`
	AwaitMs int64 `json:"awaitMs"`
}

func (a consumerArguments) listener(received *deliveries) *mq.FuncMessageListener {
	return &mq.FuncMessageListener{Consume: func(message *mq.MessageView) mq.ConsumerResult {
		received.add(message)
		if message.GetDeliveryAttempt() == 1 {
			time.Sleep(time.Duration(a.HangMs) * time.Millisecond)
		}
		if message.GetDeliveryAttempt() <= a.Failures {
			return mq.FAILURE
		}
		return mq.SUCCESS
	}}
}

func startPushConsumer(arguments consumerArguments) (any, error) {
	received := newDeliveries()
	threads := arguments.Threads
	if threads == 0 {
		threads = 4
	}
	made, err := mq.NewPushConsumer(
		arguments.config(),
		mq.WithPushAwaitDuration(5*time.Second),
		mq.WithPushSubscriptionExpressions(filters(arguments.Subscriptions)),
		mq.WithPushConsumptionThreadCount(threads),
		mq.WithPushMessageListener(arguments.listener(received)),
	)
	if err != nil {
		return nil, err
	}
	return pushConsumers.start(arguments.Name, &pushing{made, received}, made.Start)
}

func received(arguments waitArguments) (any, error) {
	running, err := pushConsumers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	return running.received.wait(arguments)
}

func stopPushConsumer(arguments nameArguments) (any, error) {
	running, err := pushConsumers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	return nil, running.consumer.GracefulStop()
}

// holding is a simple consumer, and all it has received: a message is known by its number.
type holding struct {
	consumer mq.SimpleConsumer
	mutex    sync.Mutex
	messages []*mq.MessageView
}

func (h *holding) add(message *mq.MessageView) map[string]any {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	view := viewValue(message)
	view["number"] = len(h.messages)
	h.messages = append(h.messages, message)
	return view
}

func (h *holding) get(number int) *mq.MessageView {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.messages[number]
}

func startSimpleConsumer(arguments consumerArguments) (any, error) {
	await := arguments.AwaitMs
	if await == 0 {
		await = 5_000
	}
	made, err := mq.NewSimpleConsumer(
		arguments.config(),
		mq.WithSimpleAwaitDuration(time.Duration(await)*time.Millisecond),
		mq.WithSimpleSubscriptionExpressions(filters(arguments.Subscriptions)),
	)
	if err != nil {
		return nil, err
	}
	return simpleConsumers.start(arguments.Name, &holding{consumer: made}, made.Start)
}

type messageArguments struct {
	Name        string `json:"name"`
	Count       int32  `json:"count"`
	InvisibleMs int64  `json:"invisibleMs"`
	Numbers     []int  `json:"numbers"`
}

func (m messageArguments) invisible() time.Duration {
	return time.Duration(m.InvisibleMs) * time.Millisecond
}

// receive asks once; that there is nothing is an error to this client alone.
func receive(arguments messageArguments) (any, error) {
	held, err := simpleConsumers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	messages, err := held.consumer.Receive(context.Background(), arguments.Count, arguments.invisible())
	var refused *mq.ErrRpcStatus
	if err != nil && !(errors.As(err, &refused) && refused.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND)) {
		return nil, err
	}
	views := []map[string]any{}
	for _, message := range messages {
		views = append(views, held.add(message))
	}
	return map[string]any{"messages": views}, nil
}

func ack(arguments messageArguments) (any, error) {
	return each(arguments, func(held *holding, message *mq.MessageView) error {
		return held.consumer.Ack(context.Background(), message)
	})
}

func change(arguments messageArguments) (any, error) {
	return each(arguments, func(held *holding, message *mq.MessageView) error {
		return held.consumer.ChangeInvisibleDuration(message, arguments.invisible())
	})
}

func each(arguments messageArguments, act func(*holding, *mq.MessageView) error) (any, error) {
	held, err := simpleConsumers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	results := []map[string]any{}
	for _, number := range arguments.Numbers {
		result := map[string]any{}
		if err := act(held, held.get(number)); err != nil {
			result["error"] = failure(err)
		}
		results = append(results, result)
	}
	return map[string]any{"results": results}, nil
}

func stopSimpleConsumer(arguments nameArguments) (any, error) {
	stopped, err := simpleConsumers.remove(arguments.Name)
	if err != nil {
		return nil, err
	}
	return nil, stopped.consumer.GracefulStop()
}
