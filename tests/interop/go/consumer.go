package main

import (
	"context"
	"encoding/json"
	"fmt"
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
	// How often each message is refused.
	failures int32
	// Closed and made anew with each delivery.
	arrived chan struct{}
}

func (r *recording) consume(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	result := consumer.ConsumeSuccess
	for _, message := range messages {
		if message.ReconsumeTimes < r.failures {
			result = consumer.ConsumeRetryLater
		}
		delivery := receivedValue(message)
		delivery["receivedAt"] = time.Now().UnixMilli()
		r.deliveries = append(r.deliveries, delivery)
	}
	close(r.arrived)
	r.arrived = make(chan struct{})
	return result, nil
}

func (r *recording) snapshot() ([]map[string]any, chan struct{}) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.deliveries, r.arrived
}

// wanted is a tag expression, or {"sql": …}.
type wanted struct {
	selector consumer.MessageSelector
}

func (w *wanted) UnmarshalJSON(text []byte) error {
	var sql struct {
		SQL string `json:"sql"`
	}
	w.selector.Type = consumer.TAG
	if err := json.Unmarshal(text, &w.selector.Expression); err == nil {
		return nil
	}
	err := json.Unmarshal(text, &sql)
	w.selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql.SQL}
	return err
}

// Strategies by the names of Java's classes, as far as Go's give the same shares.
var strategies = map[string]consumer.AllocateStrategy{
	"":                                      consumer.AllocateByAveragely,
	"AllocateMessageQueueAveragely":         consumer.AllocateByAveragely,
	"AllocateMessageQueueAveragelyByCircle": consumer.AllocateByAveragelyCircle,
}

type consumerSettings struct {
	MaxReconsumeTimes *int32 `json:"maxReconsumeTimes"`
}

type consumerArguments struct {
	Name          string             `json:"name"`
	Group         string             `json:"group"`
	Namesrv       string             `json:"namesrv"`
	Subscriptions map[string]*wanted `json:"subscriptions"`
	Orderly       bool               `json:"orderly"`
	Broadcasting  bool               `json:"broadcasting"`
	Failures      int32              `json:"failures"`
	Strategy      string             `json:"strategy"`
	Settings      consumerSettings   `json:"settings"`
	credentials
}

func startConsumer(arguments consumerArguments) (any, error) {
	model := consumer.Clustering
	if arguments.Broadcasting {
		model = consumer.BroadCasting
	}
	most := int32(-1)
	if arguments.Settings.MaxReconsumeTimes != nil {
		most = *arguments.Settings.MaxReconsumeTimes
	}
	strategy, known := strategies[arguments.Strategy]
	if !known {
		return nil, fmt.Errorf("no strategy of Go's gives the shares of %s", arguments.Strategy)
	}
	options := []consumer.Option{
		consumer.WithStrategy(strategy),
		consumer.WithMaxReconsumeTimes(most),
		consumer.WithNameServer(strings.Split(arguments.Namesrv, ";")),
		consumer.WithGroupName(arguments.Group),
		consumer.WithInstance(instance(arguments.Name)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(arguments.Orderly),
	}
	if arguments.AccessKey != "" {
		options = append(options, consumer.WithCredentials(arguments.user()))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	running := &recording{consumer: made, failures: arguments.Failures, arrived: make(chan struct{})}
	for topic, expression := range arguments.Subscriptions {
		selector := consumer.MessageSelector{}
		if expression != nil {
			selector = expression.selector
		}
		if err := made.Subscribe(topic, selector, running.consume); err != nil {
			return nil, err
		}
	}
	return consumers.start(arguments.Name, running, made.Start)
}

// received tells the deliveries from an index on, once there are count of them in all or the time is over.
func received(arguments waitArguments) (any, error) {
	running, err := consumers.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	late := time.After(arguments.limit())
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
