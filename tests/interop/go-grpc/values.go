package main

import (
	"encoding/json"
	"sync"
	"time"

	mq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// clientArguments say how a client finds its server and who it says it is.
type clientArguments struct {
	Name      string `json:"name"`
	Endpoints string `json:"endpoints"`
	Group     string `json:"group"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	// Of all clients that connect from then on: the official client knows no other way.
	TLS *bool `json:"tls"`
}

func (c clientArguments) config() *mq.Config {
	if c.TLS != nil {
		mq.EnableSsl = *c.TLS
	}
	return &mq.Config{
		Endpoint:      c.Endpoints,
		ConsumerGroup: c.Group,
		Credentials:   &credentials.SessionCredentials{AccessKey: c.AccessKey, AccessSecret: c.SecretKey},
	}
}

// outgoing is a message to send; bodies are base64 in JSON.
type outgoing struct {
	Body         []byte            `json:"body"`
	Tag          *string           `json:"tag"`
	Keys         []string          `json:"keys"`
	Properties   map[string]string `json:"properties"`
	MessageGroup *string           `json:"messageGroup"`
	DeliverAtMs  *int64            `json:"deliverAtMs"`
	Priority     *int32            `json:"priority"`
}

func (o outgoing) message(topic string) (*mq.Message, error) {
	message := &mq.Message{Topic: topic, Body: o.Body, Tag: o.Tag}
	for key, value := range o.Properties {
		message.AddProperty(key, value)
	}
	if len(o.Keys) > 0 {
		message.SetKeys(o.Keys...)
	}
	if o.MessageGroup != nil {
		message.SetMessageGroup(*o.MessageGroup)
	}
	if o.DeliverAtMs != nil {
		message.SetDelayTimestamp(time.UnixMilli(*o.DeliverAtMs))
	}
	if o.Priority != nil {
		return message, message.SetPriority(*o.Priority)
	}
	return message, nil
}

func receiptValue(receipts []*mq.SendReceipt, err error) map[string]any {
	if err != nil {
		return map[string]any{"error": failure(err)}
	}
	receipt := receipts[0]
	return map[string]any{
		"messageId":     receipt.MessageID,
		"transactionId": orNil(receipt.TransactionId),
		"offset":        receipt.Offset,
		"recallHandle":  orNil(receipt.RecallHandle),
	}
}

func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func viewValue(message *mq.MessageView) map[string]any {
	keys, properties := message.GetKeys(), message.GetProperties()
	if keys == nil {
		keys = []string{}
	}
	if properties == nil {
		properties = map[string]string{}
	}
	view := map[string]any{
		"topic":        message.GetTopic(),
		"messageId":    message.GetMessageId(),
		"body":         message.GetBody(),
		"tag":          message.GetTag(),
		"keys":         keys,
		"properties":   properties,
		"messageGroup": message.GetMessageGroup(),
		"bornHost":     "",
		"bornAtMs":     int64(0),
		"attempt":      message.GetDeliveryAttempt(),
		"receivedAt":   time.Now().UnixMilli(),
	}
	if at := message.GetDeliveryTimestamp(); at != nil {
		view["deliverAtMs"] = at.UnixMilli()
	}
	if host := message.GetBornHost(); host != nil {
		view["bornHost"] = *host
	}
	if at := message.GetBornTimestamp(); at != nil {
		view["bornAtMs"] = at.UnixMilli()
	}
	return view
}

// wanted is null, a tag expression, or {"sql": …}.
type wanted struct {
	filter *mq.FilterExpression
}

func (w *wanted) UnmarshalJSON(text []byte) error {
	var tags string
	if err := json.Unmarshal(text, &tags); err == nil {
		w.filter = mq.NewFilterExpression(tags)
		return nil
	}
	var sql struct {
		SQL string `json:"sql"`
	}
	err := json.Unmarshal(text, &sql)
	w.filter = mq.NewFilterExpressionWithType(sql.SQL, mq.SQL92)
	return err
}

func filters(subscriptions map[string]*wanted) map[string]*mq.FilterExpression {
	all := map[string]*mq.FilterExpression{}
	for topic, expression := range subscriptions {
		all[topic] = mq.SUB_ALL
		if expression != nil {
			all[topic] = expression.filter
		}
	}
	return all
}

// deliveries are what a client was handed, in order, for a test that waits for it.
type deliveries struct {
	mutex    sync.Mutex
	messages []map[string]any
	// Closed and made anew with each delivery.
	arrived chan struct{}
}

func newDeliveries() *deliveries {
	return &deliveries{arrived: make(chan struct{})}
}

func (d *deliveries) add(message *mq.MessageView) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.messages = append(d.messages, viewValue(message))
	close(d.arrived)
	d.arrived = make(chan struct{})
}

func (d *deliveries) snapshot() ([]map[string]any, chan struct{}) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.messages, d.arrived
}

// wait tells the deliveries from an index on, once there are count of them in all or the time is over.
func (d *deliveries) wait(arguments waitArguments) (any, error) {
	late := time.After(arguments.limit())
	for over := false; ; {
		messages, arrived := d.snapshot()
		if over || len(messages) >= arguments.Count {
			from := min(arguments.From, len(messages))
			return map[string]any{"messages": append([]map[string]any{}, messages[from:]...)}, nil
		}
		select {
		case <-arrived:
		case <-late:
			over = true
		}
	}
}
