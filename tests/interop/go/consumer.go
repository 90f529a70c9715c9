package main

import (
	"context"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var consumers = newNamed[*recording]("consumer")

// recording is a push consumer with everything that it received.
type recording struct {
	consumer   rocketmq.PushConsumer
	mutex      sync.Mutex
	deliveries []map[string]any
	// Closed and made anew with each delivery.
	arrived chan struct{}
}

func (r *recording) consume(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, message := range messages {
		delivery := receivedValue(message)
		delivery["receivedAt"] = time.Now().UnixMilli()
		r.deliveries = append(r.deliveries, delivery)
	}
	close(r.arrived)
	r.arrived = make(chan struct{})
	return consumer.ConsumeSuccess, nil
}

func (r *recording) snapshot() ([]map[string]any, chan struct{}) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.deliveries, r.arrived
}

type consumerArguments struct {
	Name          string             `json:"name"`
	Group         string             `json:"group"`
	Namesrv       string             `json:"namesrv"`
	Subscriptions map[string]*string `json:"subscriptions"`
	Orderly       bool               `json:"orderly"`
	Broadcasting  bool               `json:"broadcasting"`
}

func startConsumer(arguments consumerArguments) (any, error) {
	model := consumer.Clustering
	if arguments.Broadcasting {
		model = consumer.BroadCasting
	}
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(strings.Split(arguments.Namesrv, ";")),
		consumer.WithGroupName(arguments.Group),
		consumer.WithInstance(instance(arguments.Name)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(arguments.Orderly),
	)
	if err != nil {
		return nil, err
	}
	running := &recording{consumer: made, arrived: make(chan struct{})}
	for topic, expression := range arguments.Subscriptions {
		selector := consumer.MessageSelector{}
		if expression != nil {
			selector = consumer.MessageSelector{Type: consumer.TAG, Expression: *expression}
		}
		if err := made.Subscribe(topic, selector, running.consume); err != nil {
			return nil, err
		}
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	return nil, consumers.put(arguments.Name, running)
}

type receivedArguments struct {
	Name      string `json:"name"`
	From      int    `json:"from"`
	Count     int    `json:"count"`
	TimeoutMs int64  `json:"timeoutMs"`
}

// received tells the deliveries from an index on, once there are count of them in all or the time is over.
func received(arguments receivedArguments) (any, error) {
	running, err := consumers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	late := time.After(time.Duration(arguments.TimeoutMs) * time.Millisecond)
	for over := false; ; {
		deliveries, arrived := running.snapshot()
		if over || len(deliveries) >= arguments.Count {
			from := arguments.From
			if from > len(deliveries) {
				from = len(deliveries)
			}
			return map[string]any{"messages": deliveries[from:]}, nil
		}
		select {
		case <-arrived:
		case <-late:
			over = true
		}
	}
}

func stopConsumer(arguments nameArguments) (any, error) {
	stopped, err := consumers.remove(arguments.Name)
	if err != nil {
		return nil, err
	}
	return nil, stopped.consumer.Shutdown()
}
