"""What the parts of the shop tell each other, and where.

    topic       key        tag         body                                    read by
    orders      order id   placed      {"id": …, "item": …, "quantity": …}
    orders      order id   paid        the same                                the warehouse
    orders      order id   shipped     the same
    orders      order id   cancelled   the same
    deadlines   order id   payment     the same, half an hour late             the cancellation

The tag of an order is its state, so that who reads the topic takes what concerns it.
"""

import json
from dataclasses import dataclass

from rocketlet.client import Message
from shop.orders import Order


@dataclass(frozen=True)
class Places:
    """The names of topics and groups; tests that share a broker have names of their own."""

    orders: str = "orders"
    deadlines: str = "deadlines"
    counter: str = "counter"
    warehouse: str = "warehouse"
    cancellation: str = "cancellation"


def order_message(topic: str, tag: str, order: Order, delay_ms: int | None = None) -> Message:
    """Return the message that tells of an order."""
    return Message(topic, encode_order(order), tags=tag, keys=[order.id], delay_ms=delay_ms)


def encode_order(order: Order) -> bytes:
    """Return an order as the body of a message."""
    return json.dumps({"id": order.id, "item": order.item, "quantity": order.quantity}).encode()


def decode_order(body: bytes) -> Order:
    """Return the order of a message."""
    return Order(**json.loads(body))
