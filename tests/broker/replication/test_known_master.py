"""Where a slave's master is, by what name servers say."""

import asyncio
import logging

import pytest
from replicas import replication_settings

from rocketlet.broker.replication.known_master import KnownMaster


def make(**given: str) -> KnownMaster:
    """Return what a slave knows at its start."""
    return KnownMaster(replication_settings(brokerRole="SLAVE", brokerId="1", **given).config.replication)


async def ha_address(master: KnownMaster) -> str:
    """Return where the log is copied from, nothing while nobody knows."""
    waiting = asyncio.ensure_future(master.wait_ha_address())  # noqa: TID251 # ended here
    await asyncio.sleep(0)
    return waiting.result() if waiting.done() else str(waiting.cancel()) and ""


@pytest.mark.feature("R18")
async def test_last_answer_counts(caplog: pytest.LogCaptureFixture) -> None:
    """The master is gone when no name server knows it any more; its HA address is kept for its return."""
    caplog.set_level(logging.INFO)
    master = make()
    assert (master.address, await ha_address(master)) == ("", "")
    changes = list[bool]()
    master.subscribe(lambda: changes.append(master.is_gone))
    master.tell("a", None, None)
    master.tell("a", "10.0.0.1:10911", "10.0.0.1:10912")
    master.tell("b", "10.0.0.1:10911", "10.0.0.1:10912")
    assert (master.address, await ha_address(master)) == ("10.0.0.1:10911", "10.0.0.1:10912")
    master.tell("a", None, None)
    assert master.address == "10.0.0.1:10911"
    master.tell("b", None, None)
    assert (master.address, await ha_address(master)) == ("", "10.0.0.1:10912")
    master.tell("b", "10.0.0.2:10911", "10.0.0.2:10912")
    assert (master.address, await ha_address(master)) == ("10.0.0.2:10911", "10.0.0.2:10912")
    assert repr(master) == "<KnownMaster 10.0.0.2:10911, HA 10.0.0.2:10912>"
    assert changes == [True, False, True, False]
    assert caplog.messages == [
        "the master is at 10.0.0.1:10911, its log at 10.0.0.1:10912",
        "no name server knows the master that was at 10.0.0.1:10911",
        "the master is at 10.0.0.2:10911, its log at 10.0.0.2:10912",
    ]


async def test_named_address_wins() -> None:
    """The log is copied from haMasterAddress whatever name servers say; requests go where they say."""
    master = make(haMasterAddress="10.0.0.9:10912")
    assert (master.address, await ha_address(master)) == ("", "10.0.0.9:10912")
    master.tell("a", "10.0.0.1:10911", "10.0.0.1:10912")
    assert (master.address, await ha_address(master)) == ("10.0.0.1:10911", "10.0.0.9:10912")


def test_who_needs_a_master() -> None:
    """A slave does."""
    assert make().is_needed
    assert not KnownMaster(replication_settings().config.replication).is_needed
