"""The shop: all of its parts in one process."""

import pathlib
from contextlib import AsyncExitStack
from typing import Self

from shop.counter import Bank, Counter
from shop.deadlines import Deadlines
from shop.messages import Places
from shop.orders import Orders
from shop.warehouse import Stock, Warehouse


class Shop:
    """Runs in an ``async with`` block; its tables are files of a directory."""

    def __init__(self, directory: pathlib.Path, bank: Bank, nameserver: str, places: Places | None = None) -> None:
        places = places or Places()
        self.orders = Orders(directory / "orders.db")
        self.stock = Stock(directory / "stock.db")
        self.counter = Counter(self.orders, bank, places, nameserver)
        producer = self.counter.producer
        self._warehouse = Warehouse(self.stock, producer, places, nameserver)
        self._deadlines = Deadlines(self.orders, producer, places, nameserver)
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open: the counter first, which the others send by."""
        async with AsyncExitStack() as parts:
            for part in (self.counter.producer, self._warehouse.consumer, self._deadlines.consumer):
                await parts.enter_async_context(part)
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close; what is being shipped or cancelled is finished."""
        await self._parts.aclose()
