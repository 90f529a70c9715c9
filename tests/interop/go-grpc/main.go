// A long-lived process that runs the official Go client for RocketMQ 5 for a test.
//
// It speaks the protocol of the other drivers: each line on stdin is a command {"id": 1, "do": "producer.send", …}, each
// line on stdout an answer {"id": 1, "ok": …} or {"id": 1, "error": {"type", "code", "message"}}. Commands run side by
// side. The client logs to a file of the home directory. At the end of stdin the process exits without any good-bye.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	mq "github.com/apache/rocketmq-clients/golang/v5"
)

// A command takes its arguments and returns what is written as JSON.
type command func(arguments json.RawMessage) (any, error)

var commands = map[string]command{
	"hello":            hello,
	"producer.start":   typed(startProducer),
	"producer.send":    typed(send),
	"producer.checked": typed(checked),
	"producer.recall":  typed(recall),
	"producer.stop":    typed(stopProducer),
	"push.start":       typed(startPushConsumer),
	"push.received":    typed(received),
	"push.stop":        typed(stopPushConsumer),
	"simple.start":     typed(startSimpleConsumer),
	"simple.receive":   typed(receive),
	"simple.ack":       typed(ack),
	"simple.change":    typed(change),
	"simple.stop":      typed(stopSimpleConsumer),
}

func main() {
	os.Setenv(mq.CLIENT_LOG_LEVEL, "warn")
	mq.ResetLogger()
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		go func() { print(answer(line)) }()
	}
}

// typed reads the arguments into the struct that a command asks for.
func typed[T any](run func(T) (any, error)) command {
	return func(arguments json.RawMessage) (any, error) {
		var parsed T
		if err := json.Unmarshal(arguments, &parsed); err != nil {
			return nil, err
		}
		return run(parsed)
	}
}

func hello(json.RawMessage) (any, error) {
	return map[string]any{"client": "go 5", "pid": os.Getpid()}, nil
}

func answer(line []byte) map[string]any {
	var request struct {
		ID int    `json:"id"`
		Do string `json:"do"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return map[string]any{"id": 0, "error": failure(err)}
	}
	run, known := commands[request.Do]
	if !known {
		return map[string]any{"id": request.ID, "error": failure(fmt.Errorf("unknown command %s", request.Do))}
	}
	result, err := run(line)
	if err != nil {
		return map[string]any{"id": request.ID, "error": failure(err)}
	}
	if result == nil {
		result = map[string]any{}
	}
	return map[string]any{"id": request.ID, "ok": result}
}

func failure(err error) map[string]any {
	var refused *mq.ErrRpcStatus
	var code any
	if errors.As(err, &refused) {
		code = refused.GetCode()
	}
	return map[string]any{"type": fmt.Sprintf("%T", err), "code": code, "message": err.Error()}
}

var printing sync.Mutex

func print(answer map[string]any) {
	line, err := json.Marshal(answer)
	if err != nil {
		line, _ = json.Marshal(map[string]any{"id": answer["id"], "error": failure(err)})
	}
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.Write(append(line, '\n'))
}
