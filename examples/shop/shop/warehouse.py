"""The warehouse ships orders that are paid.

What is not in stock is tried again after 10 s, 30 s and 1 min; after the last try the order is a dead letter, and
somebody has to call the customer. A message may come twice, an order is shipped once.
"""

import pathlib
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager

from rocketlet.client import ConsumeFrom, Producer, PushConsumer, PushConsumerSettings, ReceivedMessage
from shop.messages import Places, decode_order, order_message
from shop.orders import Order

RETRIES = 3


class OutOfStockError(Exception):
    """There are not enough pieces of an item."""


class Stock:
    """The table of what is on the shelves, and that of what has left them."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        with self._database() as database:
            database.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, pieces INTEGER)")
            database.execute("CREATE TABLE IF NOT EXISTS shipped (id TEXT PRIMARY KEY)")

    def add(self, item: str, pieces: int) -> None:
        """Put pieces on the shelf."""
        with self._database() as database:
            database.execute("INSERT OR IGNORE INTO stock VALUES (?, 0)", (item,))
            database.execute("UPDATE stock SET pieces = pieces + ? WHERE item = ?", (pieces, item))

    def count(self, item: str) -> int:
        """Return how many pieces are on the shelf."""
        with self._database() as database:
            row = database.execute("SELECT pieces FROM stock WHERE item = ?", (item,)).fetchone()
        return row[0] if row else 0

    def take(self, order: Order) -> None:
        """Take what was ordered off the shelf, once.

        Raises:
            OutOfStockError: there is too little of it; nothing was taken.
        """
        with self._database() as database:
            if not database.execute("INSERT OR IGNORE INTO shipped VALUES (?)", (order.id,)).rowcount:
                return
            taken = database.execute(
                "UPDATE stock SET pieces = pieces - ? WHERE item = ? AND pieces >= ?",
                (order.quantity, order.item, order.quantity),
            )
            if not taken.rowcount:
                raise OutOfStockError(f"order {order.id} is for {order.quantity} of {order.item}")

    @contextmanager
    def _database(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as database, database:  # commits, or rolls back what has failed
            yield database


class Warehouse:
    """Consumes orders that are paid."""

    def __init__(self, stock: Stock, producer: Producer, places: Places, nameserver: str) -> None:
        self._stock = stock
        self._producer = producer
        self._topic = places.orders
        settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, max_retries=RETRIES)
        self.consumer = PushConsumer(places.warehouse, nameserver, settings=settings)
        self.consumer.subscribe(places.orders, "paid", self._ship)

    async def _ship(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            order = decode_order(message.body)
            self._stock.take(order)
            await self._producer.send(order_message(self._topic, "shipped", order))
