"""Waiting until what is in the log is on disk."""

import asyncio

from ...common.errors import StoreNotWritableError
from ...store.message_store import MessageStore


async def wait_flushed(store: MessageStore) -> None:
    """Wait until everything that is committed now is on disk.

    Raises:
        StoreNotWritableError: The flush failed.
    """
    if store.flushed_offset >= store.log_max_offset:
        return
    loop = asyncio.get_running_loop()
    flushed = loop.create_future()

    def tell(failure: StoreNotWritableError | None) -> None:
        loop.call_soon_threadsafe(_settle, flushed, failure)

    store.request_flush(tell)
    failure: StoreNotWritableError | None = await flushed
    if failure is not None:
        raise failure


def _settle(flushed: asyncio.Future[StoreNotWritableError | None], failure: StoreNotWritableError | None) -> None:
    if not flushed.done():
        flushed.set_result(failure)
