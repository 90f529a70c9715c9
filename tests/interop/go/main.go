// A long-lived process that runs the official Go client for a test.
//
// It speaks the protocol of the Java driver: each line on stdin is a command {"id": 1, "do": "producer.send", …}, each
// line on stdout an answer {"id": 1, "ok": …} or {"id": 1, "error": {"type", "message"}}. Commands run side by side.
// Logs go to stderr. At the end of stdin the process exits without any good-bye to the brokers.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// A command takes its arguments and returns what is written as JSON.
type command func(arguments json.RawMessage) (any, error)

var commands = map[string]command{
	"hello":             hello,
	"producer.start":    typed(startProducer),
	"producer.send":     typed(send),
	"producer.stop":     typed(stopProducer),
	"consumer.start":    typed(startConsumer),
	"consumer.received": typed(received),
	"consumer.stop":     typed(stopConsumer),

	"transaction.start": typed(startTransactions),
	"transaction.send":  typed(sendInTransaction),
	"transaction.stop":  typed(stopTransactions),

	"requester.start":    typed(startRequester),
	"requester.ask":      typed(ask),
	"requester.stop":     typed(stopRequester),
	"responder.start":    typed(startResponder),
	"responder.answered": typed(answered),
	"responder.stop":     typed(stopResponder),
}

func main() {
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
	return map[string]any{"client": "go", "pid": os.Getpid()}, nil
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
	return map[string]any{"type": fmt.Sprintf("%T", err), "code": nil, "message": err.Error()}
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
