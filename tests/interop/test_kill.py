"""A broker that is killed at any moment serves everything that it acknowledged, and nothing twice."""

import dataclasses
import pathlib
from typing import Any

import pytest
from durability_page import Trial, Trials
from interop.driver import Driver
from killing.cycles import CYCLES_PER_ROUND, RETENTION, Kills, run_kills
from killing.ledger import Identity, Ledger, Place
from received import received

from rocketlet.common.message import ReceivedMessage

SEED = "heron"
SETTINGS = {
    "ASYNC_FLUSH": {"flushDiskType": "ASYNC_FLUSH"},
    "SYNC_FLUSH": {"flushDiskType": "SYNC_FLUSH"},
    "full files deleted": RETENTION,
}


@pytest.mark.durability
@pytest.mark.feature("S26", "H6")
@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.timeout(1800, func_only=True)
def test_acknowledged_messages_survive_every_kill(
    how: str, java: Driver, trials: Trials, tmp_path: pathlib.Path
) -> None:
    """Each is served from the queue and offset of its answer, under load of our client, of Java's and of both."""
    cycles = trials.rounds(5, 80)
    kills = run_kills(tmp_path, cycles, f"{SEED} {how}", java, SETTINGS[how])
    for tried in sorted(kills.cycles):
        trials.add(_trial(how, tried, kills))
    assert kills.faults == []
    assert sum(kills.cycles.values()) == cycles
    assert sum(kills.acknowledged.values()) > 20 * cycles
    assert (kills.retired > 0) == (SETTINGS[how] is RETENTION)


def _trial(how: str, tried: str, kills: Kills) -> Trial:
    return Trial(
        "Kill",
        f"{how}, {tried}; a new store every {CYCLES_PER_ROUND} cycles",
        kills.cycles[tried],
        "cycles",
        kills.acknowledged[tried],
        kills.lost[tried],
        "; ".join(kills.faults[:3]) or "nothing",
        SEED,
    )


def _served(one: Identity, queue_offset: int, **changes: Any) -> ReceivedMessage:
    known = received(queue_offset, one.body, topic="Orders")
    return dataclasses.replace(known, **({"tags": one.tag, "keys": (one.key,)} | changes))


# The served messages (number, offset, what is changed of it), how many are lost, and the fault.
CASES: dict[str, tuple[list[tuple[int, int, dict[str, Any]]], int, str]] = {
    "sound": ([(0, 0, {}), (1, 1, {})], 0, ""),
    "missing": ([(0, 0, {})], 1, ""),
    "exchanged": ([(1, 0, {}), (0, 1, {})], 2, ""),
    "doubled": ([(0, 0, {}), (1, 1, {}), (0, 2, {})], 1, "is served from"),
    "gap": ([(0, 0, {}), (1, 2, {})], 1, "should come"),
    "body": ([(0, 0, {}), (1, 1, {"body": b"a-1 "})], 1, "not as it was sent"),
    "tag": ([(0, 0, {"tags": None}), (1, 1, {})], 1, "not as it was sent"),
    "foreign": ([(0, 0, {}), (1, 1, {"body": b"rotten"})], 1, "not as it was sent"),
}


@pytest.mark.parametrize(("served", "lost", "fault"), CASES.values(), ids=CASES)
def test_ledger_finds_what_is_wrong(served: list[tuple[int, int, dict[str, Any]]], lost: int, fault: str) -> None:
    """Two acknowledged messages that are not served as they were acknowledged are lost, or a fault says why."""
    ledger = Ledger()
    ledger.acknowledge("a", 0, Place("Orders", 0, 0), 2)
    ledger.add_served([_served(Identity("a", number), offset, **changes) for number, offset, changes in served])
    assert len(ledger.lost) == lost
    assert bool(ledger.faults) == bool(fault)
    assert fault in "".join(ledger.faults)


def test_ledger_counts_deleted_messages_as_retired() -> None:
    """What comes before the first offset of a queue is not lost once the queue has been seen to begin there."""
    ledger = Ledger()
    ledger.acknowledge("a", 0, Place("Orders", 0, 0), 2)
    assert len(ledger.lost) == 2
    ledger.retire("Orders", 0, 1)
    assert ledger.lost == [Identity("a", 1)]
    ledger.add_served([_served(Identity("a", 1), 1)])
    assert ledger.lost == []
