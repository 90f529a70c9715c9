package main

import (
	"fmt"
	"os"
	"sync"
)

// named holds the running clients of one kind under the names that the test gave them.
type named[T any] struct {
	kind  string
	mutex sync.Mutex
	items map[string]T
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

// An instance name of its own for each client, so that several live in one process.
func instance(name string) string {
	return fmt.Sprintf("%s#%d", name, os.Getpid())
}
