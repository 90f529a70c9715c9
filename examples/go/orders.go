package shop

import (
	"encoding/json"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Order is so many pieces of an item.
type Order struct {
	ID       string `json:"id"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

// message returns the message that tells of the order: by its id, and its state as the tag.
func (o Order) message(topic, state string) *primitive.Message {
	body, _ := json.Marshal(o) // nothing in an order is without JSON
	return primitive.NewMessage(topic, body).WithTag(state).WithKeys([]string{o.ID})
}

func orderOf(body []byte) Order {
	var order Order
	_ = json.Unmarshal(body, &order) // what is no order has an item that is never in stock
	return order
}

// State is how far an order is.
type State string

// The states of an order.
const (
	Placed    State = "placed"
	Paid      State = "paid"
	Cancelled State = "cancelled"
)

type entry struct {
	state   State
	payment string
}

// Orders is the table of orders; a real shop has a database here.
type Orders struct {
	mutex   sync.Mutex
	entries map[string]entry
}

func newOrders() *Orders {
	return &Orders{entries: map[string]entry{}}
}

func (o *Orders) add(order Order) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.entries[order.ID] = entry{state: Placed}
}

// State returns how far an order is.
func (o *Orders) State(id string) State {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.entries[id].state
}

// Pay takes note that an order is paid, and tells whether it was waiting for that.
func (o *Orders) Pay(id, payment string) bool {
	return o.leavePlaced(id, entry{Paid, payment})
}

func (o *Orders) isPaidBy(id, payment string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.entries[id] == entry{Paid, payment}
}

// cancel cancels an order unless it is paid, and tells whether it is cancelled now.
func (o *Orders) cancel(id string) bool {
	o.leavePlaced(id, entry{state: Cancelled})
	return o.State(id) == Cancelled
}

func (o *Orders) leavePlaced(id string, next entry) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.entries[id].state != Placed {
		return false
	}
	o.entries[id] = next
	return true
}
