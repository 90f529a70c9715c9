"""An order, and the table in which the shop keeps its orders.

Each call opens the database anew, so that any thread may call.
"""

import pathlib
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum


class OrderState(StrEnum):
    """How far an order is."""

    PLACED = "placed"
    PAID = "paid"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Order:
    """So many pieces of an item; ``payment`` is the number of the payment, once there is one."""

    id: str
    item: str
    quantity: int
    state: OrderState = OrderState.PLACED
    payment: str | None = None


class Orders:
    """The table of orders."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        with self._database() as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS orders "
                "(id TEXT PRIMARY KEY, item TEXT, quantity INTEGER, state TEXT, payment TEXT)"
            )

    def add(self, order: Order) -> None:
        """Keep a new order."""
        row = (order.id, order.item, order.quantity, order.state, order.payment)
        with self._database() as database:
            database.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", row)

    def get(self, order_id: str) -> Order:
        """Return an order.

        Raises:
            KeyError: there is none.
        """
        with self._database() as database:
            row = database.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
        if row is None:
            raise KeyError(order_id)
        _, item, quantity, state, payment = row
        return Order(order_id, item, quantity, OrderState(state), payment)

    def pay(self, order_id: str, payment: str) -> bool:
        """Take note that an order is paid; tell whether it was waiting for that."""
        return self._leave_placed("UPDATE orders SET state = 'paid', payment = ? WHERE id = ?", payment, order_id)

    def cancel(self, order_id: str) -> bool:
        """Cancel an order unless it is paid; tell whether it is cancelled now."""
        self._leave_placed("UPDATE orders SET state = 'cancelled' WHERE id = ?", order_id)
        return self.get(order_id).state is OrderState.CANCELLED

    def _leave_placed(self, change: str, *values: str) -> bool:
        with self._database() as database:
            return database.execute(f"{change} AND state = 'placed'", values).rowcount == 1

    @contextmanager
    def _database(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path)) as database, database:  # commits, or rolls back what has failed
            yield database
