"""Which event loop a process or thread of ours runs on: uvloop, or asyncio's own where there is no wheel of it."""

import asyncio
from collections.abc import Callable


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what ``asyncio.Runner`` shall make its loop with; ``None`` stands for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
