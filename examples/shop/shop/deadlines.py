"""Cancels orders that are not paid in time: each order has sent a message for that hour when it was placed."""

from collections.abc import Sequence

from rocketlet.client import ConsumeFrom, Producer, PushConsumer, PushConsumerSettings, ReceivedMessage
from shop.messages import Places, decode_order, order_message
from shop.orders import Orders


class Deadlines:
    """Consumes deadlines when they have come."""

    def __init__(self, orders: Orders, producer: Producer, places: Places, nameserver: str) -> None:
        self._orders = orders
        self._producer = producer
        self._topic = places.orders
        settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)
        self.consumer = PushConsumer(places.cancellation, nameserver, settings=settings)
        self.consumer.subscribe(places.deadlines, "payment", self._cancel)

    async def _cancel(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            order = decode_order(message.body)
            if self._orders.cancel(order.id):
                await self._producer.send(order_message(self._topic, "cancelled", order))
