"""The shop beside a program without an event loop, a web application perhaps: in a thread that has one."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from shop.application import Shop
from shop.orders import Order, OrderState

T = TypeVar("T")


class BackgroundShop:
    """Runs a shop in a ``with`` block; its methods block."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.orders, self.stock, self.confirm = shop.orders, shop.stock, shop.counter.confirm
        self._thread = threading.Thread(target=self._serve, name="shop")
        self._opened: Future[asyncio.AbstractEventLoop] = Future()
        self._closing: asyncio.Event

    def __enter__(self) -> Self:
        """Open the shop (raises what that raises)."""
        self._thread.start()
        self._opened.result()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._opened.result().call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def place(self, item: str, quantity: int = 1) -> Order:
        """Take an order, which is to be paid within half an hour."""
        return self._call(self._shop.counter.place(item, quantity))

    def pay(self, order_id: str) -> OrderState:
        """Have an order paid, and return how far it is."""
        return self._call(self._shop.counter.pay(order_id))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._opened.result()).result()

    def _serve(self) -> None:
        try:
            asyncio.run(self._keep_open())
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _keep_open(self) -> None:
        self._closing = asyncio.Event()
        async with self._shop:
            self._opened.set_result(asyncio.get_running_loop())
            await self._closing.wait()
