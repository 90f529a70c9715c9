package shop

import (
	"fmt"
	"sync"
)

// Stock is what is on the shelves, and what has left them.
type Stock struct {
	mutex   sync.Mutex
	pieces  map[string]int
	shipped map[string]bool
}

func newStock() *Stock {
	return &Stock{pieces: map[string]int{}, shipped: map[string]bool{}}
}

// Add puts pieces on the shelf.
func (s *Stock) Add(item string, count int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.pieces[item] += count
}

// Count returns how many pieces are on the shelf.
func (s *Stock) Count(item string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.pieces[item]
}

// take takes what was ordered off the shelf, once.
func (s *Stock) take(order Order) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.shipped[order.ID] {
		return nil
	}
	if s.pieces[order.Item] < order.Quantity {
		return fmt.Errorf("order %s is for %d of %s, there are %d", order.ID, order.Quantity, order.Item, s.pieces[order.Item])
	}
	s.pieces[order.Item] -= order.Quantity
	s.shipped[order.ID] = true
	return nil
}
