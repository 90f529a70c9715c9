package shop

import "github.com/apache/rocketmq-client-go/v2/primitive"

// Charge is what a bank says when it is asked for money.
type Charge int

// Accepted and Declined are final; after Pending the bank decides later.
const (
	Accepted Charge = iota
	Declined
	Pending
)

// Bank asks for the price of an order; the payment is named again when the bank decides later.
type Bank func(order Order, payment string) Charge

// payments are the local transactions of messages about orders that are paid.
type payments struct {
	orders *Orders
	bank   Bank
}

// ExecuteLocalTransaction asks the bank, and keeps what it says.
func (p payments) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	order := orderOf(message.Body)
	switch p.bank(order, message.TransactionId) {
	case Pending:
		return primitive.UnknowState
	case Accepted:
		if p.orders.Pay(order.ID, message.TransactionId) {
			return primitive.CommitMessageState
		}
	}
	return primitive.RollbackMessageState
}

// CheckLocalTransaction looks up what has become of a payment.
func (p payments) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	order := orderOf(message.Body)
	switch {
	case p.orders.State(order.ID) == Placed:
		return primitive.UnknowState
	case p.orders.isPaidBy(order.ID, message.TransactionId):
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}
