"""The check that nothing of ours blocks an event loop."""

import asyncio
import pathlib

import pytest
from blockbuster import BlockingError

from rocketlet.store.files.files import OS_FILES


async def test_blocking_call_on_a_loop_fails(tmp_path: pathlib.Path):
    """Walking a directory on the loop is caught; in a thread it is fine."""
    with pytest.raises(BlockingError, match="Scandir"):
        OS_FILES.list(str(tmp_path))
    assert await asyncio.to_thread(OS_FILES.list, str(tmp_path)) == []
