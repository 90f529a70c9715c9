"""The counter takes orders and payments.

An order that is paid must be told to the warehouse, and no other: the payment is a local transaction of the message.

    the bank says   the table     the message
    accepted        paid          is delivered
    declined        as it was     is dropped
    pending         as it was     waits: the broker asks until the bank has told (``confirm``) or the order is cancelled
"""

import uuid
from enum import Enum
from typing import Protocol

from rocketlet.client import Message, ReceivedMessage, TransactionProducer, TransactionState
from shop.messages import Places, order_message
from shop.orders import Order, Orders, OrderState

PAYMENT_MS = 30 * 60_000
"""How long an order waits for its payment."""


class Charge(Enum):
    """What a bank says when it is asked for money."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    PENDING = "pending"


class Bank(Protocol):
    """Whoever has the money of the customers."""

    def charge(self, order: Order, payment: str) -> Charge:
        """Ask for the price of an order; the number of the payment is to be named when the bank decides later."""
        ...


class Counter:
    """Takes orders and payments; the listener of its own transactions."""

    def __init__(self, orders: Orders, bank: Bank, places: Places, nameserver: str) -> None:
        self._orders = orders
        self._bank = bank
        self._places = places
        self.producer = TransactionProducer(places.counter, nameserver, listener=self, topics=[places.orders])

    async def place(self, item: str, quantity: int = 1) -> Order:
        """Take an order, which is to be paid within half an hour."""
        order = Order(uuid.uuid4().hex[:8], item, quantity)
        self._orders.add(order)
        await self.producer.send(order_message(self._places.orders, "placed", order))
        await self.producer.send(order_message(self._places.deadlines, "payment", order, PAYMENT_MS))
        return order

    async def pay(self, order_id: str) -> OrderState:
        """Have an order paid, and return how far it is."""
        order = self._orders.get(order_id)
        await self.producer.send_in_transaction(order_message(self._places.orders, "paid", order), order)
        return self._orders.get(order_id).state

    def confirm(self, order_id: str, payment: str) -> bool:
        """Hear of the bank that a pending payment was accepted; tell whether the order was waiting for it."""
        return self._orders.pay(order_id, payment)

    # the local transaction, on threads of the producer

    def execute(self, message: Message, order: Order) -> TransactionState:
        """Ask the bank, and keep what it says."""
        payment = str(message.message_id)
        charge = self._bank.charge(order, payment)
        if charge is Charge.PENDING:
            return TransactionState.UNKNOWN
        if charge is Charge.ACCEPTED and self._orders.pay(order.id, payment):
            return TransactionState.COMMIT
        return TransactionState.ROLLBACK

    def check(self, message: ReceivedMessage) -> TransactionState:
        """Look up what has become of a payment."""
        (order_id,) = message.keys
        order = self._orders.get(order_id)
        if order.state is OrderState.PLACED:
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if order.payment == message.message_id else TransactionState.ROLLBACK
