package main

import (
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// queueValue is a message queue as the driver's JSON shows it.
type queueValue struct {
	Topic      string `json:"topic"`
	BrokerName string `json:"brokerName"`
	QueueID    int    `json:"queueId"`
}

// outgoing is a message to send; bodies are base64 in JSON.
type outgoing struct {
	Body       []byte            `json:"body"`
	Tags       string            `json:"tags"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Flag       int32             `json:"flag"`
	DelayLevel int               `json:"delayLevel"`
}

func (o outgoing) message(topic string, queue *queueValue) *primitive.Message {
	message := primitive.NewMessage(topic, o.Body)
	message.Flag = o.Flag
	if len(o.Properties) > 0 {
		message.WithProperties(o.Properties)
	}
	if o.Tags != "" {
		message.WithTag(o.Tags)
	}
	if len(o.Keys) > 0 {
		message.WithKeys(o.Keys)
	}
	if o.DelayLevel > 0 {
		message.WithDelayTimeLevel(o.DelayLevel)
	}
	if queue != nil {
		message.Queue = &primitive.MessageQueue{Topic: queue.Topic, BrokerName: queue.BrokerName, QueueId: queue.QueueID}
	}
	return message
}

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

func sentValue(result *primitive.SendResult, err error) map[string]any {
	if err != nil {
		return map[string]any{"error": failure(err)}
	}
	return map[string]any{
		"status":        statuses[result.Status],
		"msgId":         result.MsgID,
		"offsetMsgId":   result.OffsetMsgID,
		"queue":         queueValue{result.MessageQueue.Topic, result.MessageQueue.BrokerName, result.MessageQueue.QueueId},
		"queueOffset":   result.QueueOffset,
		"transactionId": result.TransactionID,
		"regionId":      result.RegionID,
		"traceOn":       result.TraceOn,
	}
}

func receivedValue(message *primitive.MessageExt) map[string]any {
	value := map[string]any{
		"topic":                     message.Topic,
		"queueOffset":               message.QueueOffset,
		"logOffset":                 message.CommitLogOffset,
		"msgId":                     message.MsgId,
		"offsetMsgId":               message.OffsetMsgId,
		"tags":                      message.GetTags(),
		"keys":                      message.GetKeys(),
		"properties":                message.GetProperties(),
		"body":                      message.Body,
		"flag":                      message.Flag,
		"sysFlag":                   message.SysFlag,
		"bornTimestamp":             message.BornTimestamp,
		"storeTimestamp":            message.StoreTimestamp,
		"bornHost":                  message.BornHost,
		"storeHost":                 message.StoreHost,
		"reconsumeTimes":            message.ReconsumeTimes,
		"preparedTransactionOffset": message.PreparedTransactionOffset,
		"bodyCrc":                   message.BodyCRC,
		"storeSize":                 message.StoreSize,
	}
	if message.Queue != nil {
		value["brokerName"] = message.Queue.BrokerName
		value["queueId"] = message.Queue.QueueId
	}
	return value
}
