// Package shop is a small shop: it takes orders and payments, its warehouse ships what is paid, and unpaid orders are
// cancelled.
//
// A payment is the local transaction of its message. What is not in stock is tried again after 10 s, 30 s and 1 min; then
// the order is a dead letter. Each order sends a message for the hour at which it must be paid.
package shop

import (
	"context"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/google/uuid"
)

const (
	retries    = 3
	halfAnHour = 16 // of the levels of delay
)

// Places are the names of topics and groups; tests that share a broker have names of their own.
type Places struct {
	Orders, Deadlines, Counter, Warehouse, Cancellation string
}

// Shop has all parts in one process.
type Shop struct {
	Orders *Orders
	Stock  *Stock

	places   Places
	producer rocketmq.Producer
	payments rocketmq.TransactionProducer
	closing  []func() error
}

// Open opens a shop.
func Open(nameserver string, places Places, bank Bank) (*Shop, error) {
	shop := &Shop{Orders: newOrders(), Stock: newStock(), places: places}
	if err := shop.open(primitive.NamesrvAddr{nameserver}, bank); err != nil {
		shop.Close()
		return nil, err
	}
	return shop, nil
}

func (s *Shop) open(nameserver primitive.NamesrvAddr, bank Bank) (err error) {
	// One connection for all: the producer can be asked about its transactions as soon as the consumers are known.
	instance := uuid.NewString()
	options := func(group string) []producer.Option {
		return []producer.Option{
			producer.WithNameServer(nameserver),
			producer.WithInstanceName(instance),
			producer.WithGroupName(group),
			producer.WithRetry(2),
		}
	}
	if s.payments, err = rocketmq.NewTransactionProducer(payments{s.Orders, bank}, options(s.places.Counter)...); err != nil {
		return err
	}
	if err = s.start(s.payments); err != nil {
		return err
	}
	if s.producer, err = rocketmq.NewProducer(options(s.places.Counter + "-messages")...); err != nil {
		return err
	}
	if err = s.start(s.producer); err != nil {
		return err
	}
	consume := func(group, topic, tag string, handle func(Order) error) error {
		made, err := rocketmq.NewPushConsumer(
			consumer.WithNameServer(nameserver),
			consumer.WithInstance(instance),
			consumer.WithGroupName(group),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
			consumer.WithMaxReconsumeTimes(retries),
		)
		if err != nil {
			return err
		}
		listen := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if handle(orderOf(messages[0].Body)) != nil { // one message at a time, unless told otherwise
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		}
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tag}
		if err = made.Subscribe(topic, selector, listen); err != nil {
			return err
		}
		return s.start(made)
	}
	if err = consume(s.places.Warehouse, s.places.Orders, "paid", s.ship); err != nil {
		return err
	}
	return consume(s.places.Cancellation, s.places.Deadlines, "payment", s.cancel)
}

func (s *Shop) start(client interface {
	Start() error
	Shutdown() error
}) error {
	s.closing = append(s.closing, client.Shutdown)
	return client.Start()
}

// Close closes what was opened, the last first.
func (s *Shop) Close() {
	for index := len(s.closing) - 1; index >= 0; index-- {
		_ = s.closing[index]()
	}
}

// Place takes an order, which is to be paid within half an hour.
func (s *Shop) Place(item string, quantity int) (Order, error) {
	order := Order{ID: uuid.NewString()[:8], Item: item, Quantity: quantity}
	s.Orders.add(order)
	if err := s.tell(order, "placed"); err != nil {
		return order, err
	}
	deadline := order.message(s.places.Deadlines, "payment").WithDelayTimeLevel(halfAnHour)
	_, err := s.producer.SendSync(context.Background(), deadline)
	return order, err
}

// Pay has an order paid, and returns how far it is.
func (s *Shop) Pay(order Order) (State, error) {
	_, err := s.payments.SendMessageInTransaction(context.Background(), order.message(s.places.Orders, "paid"))
	return s.Orders.State(order.ID), err
}

func (s *Shop) ship(order Order) error {
	if err := s.Stock.take(order); err != nil {
		return err
	}
	return s.tell(order, "shipped")
}

func (s *Shop) cancel(order Order) error {
	if s.Orders.cancel(order.ID) {
		return s.tell(order, "cancelled")
	}
	return nil
}

func (s *Shop) tell(order Order, state string) error {
	_, err := s.producer.SendSync(context.Background(), order.message(s.places.Orders, state))
	return err
}
