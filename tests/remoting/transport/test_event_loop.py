"""The event loop of a process of ours."""

import asyncio
import sys

import pytest
import uvloop

from rocketlet.remoting.transport.event_loop import find_loop_factory


def test_loop_is_uvloop():
    """Where uvloop can be imported, it makes the loop."""
    assert find_loop_factory() is uvloop.new_event_loop


def test_loop_falls_back_to_asyncio(monkeypatch: pytest.MonkeyPatch):
    """Without uvloop the runner makes asyncio's own loop."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    factory = find_loop_factory()
    assert factory is None
    with asyncio.Runner(loop_factory=factory) as runner:
        assert not isinstance(runner.get_loop(), uvloop.Loop)
