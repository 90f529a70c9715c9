package main

import (
	"fmt"
	"sync"
	"time"
)

// named holds the running clients of one kind under the names that the test gave them.
type named[T any] struct {
	kind  string
	mutex sync.Mutex
	items map[string]T
}

// Waits for something of the named client: count of it in all, or until the time is over.
type waitArguments struct {
	Name      string `json:"name"`
	From      int    `json:"from"`
	Count     int    `json:"count"`
	TimeoutMs int64  `json:"timeoutMs"`
}

func (w waitArguments) limit() time.Duration {
	return time.Duration(w.TimeoutMs) * time.Millisecond
}

func newNamed[T any](kind string) *named[T] {
	return &named[T]{kind: kind, items: map[string]T{}}
}

func (n *named[T]) put(name string, item T) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if _, running := n.items[name]; running {
		return fmt.Errorf("%s %s is already running", n.kind, name)
	}
	n.items[name] = item
	return nil
}

// start starts a client and keeps it; it is the last step of a command.
func (n *named[T]) start(name string, item T, start func() error) (any, error) {
	if err := start(); err != nil {
		return nil, err
	}
	return nil, n.put(name, item)
}

func (n *named[T]) get(name string) (T, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	item, running := n.items[name]
	if !running {
		return item, fmt.Errorf("%s %s is not running", n.kind, name)
	}
	return item, nil
}

func (n *named[T]) remove(name string) (T, error) {
	item, err := n.get(name)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	delete(n.items, name)
	return item, err
}
