package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	requesters = newNamed[rocketmq.Producer]("requester")
	responders = newNamed[*responder]("responder")
)

type requesterArguments struct {
	Name    string `json:"name"`
	Namesrv string `json:"namesrv"`
}

func startRequester(arguments requesterArguments) (any, error) {
	made, err := newProducer(arguments.Name, arguments.Namesrv)
	if err != nil {
		return nil, err
	}
	return nil, requesters.put(arguments.Name, made)
}

func newProducer(name, namesrv string) (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(
		producer.WithNameServer(strings.Split(namesrv, ";")),
		producer.WithGroupName(name),
		producer.WithInstanceName(instance(name)),
	)
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

type askArguments struct {
	Name      string     `json:"name"`
	Topic     string     `json:"topic"`
	Mode      string     `json:"mode"`
	Messages  []outgoing `json:"messages"`
	TimeoutMs int64      `json:"timeoutMs"`
}

func ask(arguments askArguments) (any, error) {
	from, err := requesters.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	within := time.Duration(arguments.TimeoutMs) * time.Millisecond
	var all []map[string]any
	for _, message := range arguments.Messages {
		request := message.message(arguments.Topic, nil)
		if arguments.Mode == "async" {
			all = append(all, askWithCallback(from, request, within))
			continue
		}
		all = append(all, replyValue(from.Request(context.Background(), within, request)))
	}
	return results(all...), nil
}

func askWithCallback(from rocketmq.Producer, request *primitive.Message, within time.Duration) map[string]any {
	outcome := make(chan map[string]any, 1)
	callback := func(_ context.Context, reply *primitive.Message, err error) { outcome <- replyValue(reply, err) }
	if err := from.RequestAsync(context.Background(), within, callback, request); err != nil {
		return replyValue(nil, err)
	}
	select {
	case value := <-outcome:
		return value
	case <-time.After(30 * time.Second):
		return replyValue(nil, errors.New("a request had no outcome in 30 s"))
	}
}

func replyValue(reply *primitive.Message, err error) map[string]any {
	if err != nil {
		return map[string]any{"error": failure(err)}
	}
	var received primitive.MessageExt
	received.Topic, received.Body = reply.Topic, reply.Body
	received.WithProperties(reply.GetProperties())
	return map[string]any{"reply": receivedValue(&received)}
}

func stopRequester(arguments nameArguments) (any, error) {
	stopped, err := requesters.remove(arguments.Name)
	if err != nil {
		return nil, err
	}
	return nil, stopped.Shutdown()
}

// responder answers "re: " and the body of each request.
type responder struct {
	consumer rocketmq.PushConsumer
	producer rocketmq.Producer
	mutex    sync.Mutex
	results  []map[string]any
}

type responderArguments struct {
	Name    string `json:"name"`
	Namesrv string `json:"namesrv"`
	Group   string `json:"group"`
	Topic   string `json:"topic"`
}

func startResponder(arguments responderArguments) (any, error) {
	answers, err := newProducer(arguments.Name+"-answers", arguments.Namesrv)
	if err != nil {
		return nil, err
	}
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(strings.Split(arguments.Namesrv, ";")),
		consumer.WithGroupName(arguments.Group),
		consumer.WithInstance(instance(arguments.Name)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	running := &responder{consumer: made, producer: answers}
	if err := made.Subscribe(arguments.Topic, consumer.MessageSelector{}, running.consume); err != nil {
		return nil, err
	}
	return responders.start(arguments.Name, running, made.Start)
}

func (r *responder) consume(_ context.Context, requests ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, request := range requests {
		result := r.respond(request)
		r.mutex.Lock()
		r.results = append(r.results, result)
		r.mutex.Unlock()
	}
	return consumer.ConsumeSuccess, nil
}

func (r *responder) respond(request *primitive.MessageExt) map[string]any {
	reply, err := consumer.CreateReplyMessage(request, nil) // it takes the body for properties
	if err != nil {
		return sentValue(nil, err)
	}
	reply.Body = append([]byte("re: "), request.Body...)
	return sentValue(r.producer.SendSync(context.Background(), reply))
}

// answered tells what became of the answers, once there are count of them or the time is over.
func answered(arguments waitArguments) (any, error) {
	running, err := responders.get(arguments.Name)
	if err != nil {
		return nil, err
	}
	late := time.Now().Add(arguments.limit())
	for {
		running.mutex.Lock()
		found := running.results
		running.mutex.Unlock()
		if len(found) >= arguments.Count || time.Now().After(late) {
			return results(found...), nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func stopResponder(arguments nameArguments) (any, error) {
	stopped, err := responders.remove(arguments.Name)
	if err != nil {
		return nil, err
	}
	if err := stopped.consumer.Shutdown(); err != nil {
		return nil, err
	}
	return nil, stopped.producer.Shutdown()
}
