package shop

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

var broker *rocketlet

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if broker, err = startRocketlet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer broker.stop()
	return m.Run()
}

// testBank says what it is told to, and keeps the number of the last payment.
type testBank struct {
	mutex   sync.Mutex
	answer  Charge
	payment string
}

func (b *testBank) charge(_ Order, payment string) Charge {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.payment = payment
	return b.answer
}

// fixture is a shop on the broker, with names of the test's own.
type fixture struct {
	controls
	*Shop
	bank   *testBank
	places Places
}

func openShop(t *testing.T) fixture {
	broker := broker.begin(t)
	places := Places{broker.topic(), broker.topic(), broker.group(), broker.group(), broker.group()}
	bank := &testBank{}
	shop, err := Open(broker.nameserver, places, bank.charge)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shop.Close)
	return fixture{broker, shop, bank, places}
}

func (f fixture) place(item string, quantity int) Order {
	f.t.Helper()
	order, err := f.Place(item, quantity)
	if err != nil {
		f.t.Fatal(err)
	}
	return order
}

func (f fixture) pay(order Order) State {
	f.t.Helper()
	state, err := f.Pay(order)
	if err != nil {
		f.t.Fatal(err)
	}
	return state
}

// tries returns how often the warehouse has sent an order back.
func (f fixture) tries() int {
	return f.countRequests("send_back", f.places.Warehouse)
}

func expect[T comparable](t *testing.T, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %v, wanted %v", what, got, wanted)
	}
}

func TestOrderIsAnnounced(t *testing.T) {
	f := openShop(t)
	order := f.place("tea", 2)
	f.post("/expect", fields{"topic": f.places.Orders, "tags": "placed", "json": order, "times": 1}, nil)
	f.waitConsumed(f.places.Warehouse)
	expect(t, "lag", f.lag(f.places.Warehouse), 0)
}

func TestOrderSurvivesEndOfConnection(t *testing.T) {
	f := openShop(t)
	f.addFault(fields{"on": "send", "topic": f.places.Orders, "answer": "CLOSE"})
	order := f.place("tea", 1)
	f.assertSent(f.places.Orders, "placed", order.ID, 1)
}

func TestPaidOrderIsShipped(t *testing.T) {
	f := openShop(t)
	f.Stock.Add("tea", 3)
	expect(t, "state", f.pay(f.place("tea", 2)), Paid)
	f.waitFor(f.places.Orders, "shipped")
	expect(t, "pieces left", f.Stock.Count("tea"), 1)
	expect(t, "open transactions", len(f.transactions()), 0)
}

func TestDeclinedPaymentIsNotTold(t *testing.T) {
	f := openShop(t)
	f.bank.answer = Declined
	order := f.place("tea", 1)
	expect(t, "state", f.pay(order), Placed)
	f.advance(5 * time.Minute)
	expect(t, "open transactions", len(f.transactions()), 0)
	f.assertSent(f.places.Orders, "paid", order.ID, 0)
}

func TestPendingPaymentIsAskedAbout(t *testing.T) {
	f := openShop(t)
	f.bank.answer = Pending
	order := f.place("tea", 1)
	f.pay(order)
	f.advance(2 * time.Minute)
	if open := f.transactions(); len(open) != 1 || open[0].CheckCount == 0 {
		t.Fatalf("nobody was asked: %v", open)
	}
	expect(t, "confirmed", f.Orders.Pay(order.ID, f.bank.payment), true)
	f.advance(2 * time.Minute)
	expect(t, "open transactions", len(f.transactions()), 0)
	f.assertSent(f.places.Orders, "paid", order.ID, 1)
}

func TestLostCommitIsMadeGood(t *testing.T) {
	f := openShop(t)
	lost := f.addFault(fields{"on": "end_transaction", "answer": "DROP"})
	order := f.place("tea", 1)
	expect(t, "state", f.pay(order), Paid)
	f.waitForFault(lost)
	f.assertSent(f.places.Orders, "paid", order.ID, 0)
	f.advance(2 * time.Minute)
	f.assertSent(f.places.Orders, "paid", order.ID, 1)
}

func TestOrderWaitsForStock(t *testing.T) {
	f := openShop(t)
	f.freeze()
	order := f.place("tea", 1)
	f.pay(order)
	f.waitFor(f.places.Orders, "paid")
	f.waitConsumed(f.places.Warehouse)
	expect(t, "tries", f.tries(), 1)
	for _, step := range []struct{ seconds, tries int }{{9, 1}, {1, 2}, {29, 2}, {1, 3}} {
		f.advance(time.Duration(step.seconds) * time.Second)
		expect(t, "tries", f.tries(), step.tries)
	}
	f.Stock.Add("tea", 1)
	f.advance(time.Minute)
	f.assertSent(f.places.Orders, "shipped", order.ID, 1)
	expect(t, "dead letters", len(f.deadLetters(f.places.Warehouse)), 0)
}

func TestOrderThatCannotBeShippedIsDeadLetter(t *testing.T) {
	f := openShop(t)
	order := f.place("tea", 1)
	f.pay(order)
	f.waitFor(f.places.Orders, "paid")
	f.waitConsumed(f.places.Warehouse)
	f.advance(2 * time.Minute)
	given := f.deadLetters(f.places.Warehouse)
	if len(given) != 1 {
		t.Fatalf("dead letters: %v", given)
	}
	expect(t, "key", given[0].Keys[0], order.ID)
	expect(t, "tries", f.tries(), 4)
}

func TestUnpaidOrderIsCancelled(t *testing.T) {
	f := openShop(t)
	order := f.place("tea", 1)
	f.advance(29 * time.Minute)
	expect(t, "state", f.Orders.State(order.ID), Placed)
	f.advance(2 * time.Minute)
	expect(t, "state", f.Orders.State(order.ID), Cancelled)
	f.assertSent(f.places.Orders, "cancelled", order.ID, 1)
}

func TestPaidOrderIsNotCancelled(t *testing.T) {
	f := openShop(t)
	order := f.place("tea", 1)
	f.pay(order)
	f.advance(31 * time.Minute)
	expect(t, "state", f.Orders.State(order.ID), Paid)
	f.assertSent(f.places.Orders, "cancelled", order.ID, 0)
}
