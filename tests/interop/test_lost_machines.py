"""A master is lost with its machine, and its slave has what it acknowledged: all under SYNC_MASTER, else nearly all."""

import pathlib
import statistics

import pytest
from durability_page import Trial, Trials
from interop.driver import Driver
from killing.bad_links import KINDS, lose_behind_bad_links
from killing.lost_masters import ASYNC_MASTER, SYNC_MASTER, Loss, Losses, lose_masters

PART = "Lost machines"
SEED = "curlew"
FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"


@pytest.mark.durability
@pytest.mark.feature("H1", "H3", "S20")
@pytest.mark.timeout(1800, func_only=True)
def test_slave_has_all_that_a_lost_sync_master_acknowledged(
    java: Driver, trials: Trials, tmp_path: pathlib.Path
) -> None:
    """Each message is served by the slave at its place, and by the new master that the slave is made."""
    rounds = trials.rounds(3, 144)
    losses = lose_masters(tmp_path, rounds, f"{SEED} sync", java, SYNC_MASTER)
    add_rows(trials, losses, "SYNC_MASTER, ")
    assert losses.faults == []
    assert losses.missing == []
    assert losses.rounds == rounds
    assert losses.acknowledged.total() > 20 * rounds
    assert losses.promotions > 0


@pytest.mark.durability
@pytest.mark.feature("H1", "H3")
@pytest.mark.timeout(1800, func_only=True)
def test_slave_lacks_the_newest_of_a_lost_async_master(java: Driver, trials: Trials, tmp_path: pathlib.Path) -> None:
    """What it has is the beginning of what was acknowledged, unchanged and once; the page says how much it lacks."""
    rounds = trials.rounds(3, 60)
    losses = lose_masters(tmp_path, rounds, f"{SEED} async", java, ASYNC_MASTER)
    add_rows(trials, losses, "ASYNC_MASTER, ")
    assert losses.faults == []
    assert losses.rounds == rounds
    assert losses.acknowledged.total() > 20 * rounds
    assert len(losses.missing) < losses.acknowledged.total()


@pytest.mark.durability
@pytest.mark.feature("H1", "S20")
@pytest.mark.timeout(1800, func_only=True)
@pytest.mark.parametrize("kind", KINDS)
def test_sends_over_a_bad_link_are_answered_and_kept(kind: str, trials: Trials, tmp_path: pathlib.Path) -> None:
    """Each send is SEND_OK or FLUSH_SLAVE_TIMEOUT, both logs become equal again, and the slave has what was SEND_OK."""
    rounds = trials.rounds(1, 8)
    losses = lose_behind_bad_links(tmp_path, rounds, SEED, kind)
    add_rows(trials, losses, "SYNC_MASTER, ")
    assert losses.faults == []
    assert losses.missing == []
    assert losses.rounds == rounds
    assert set(losses.unsure) == {FLUSH_SLAVE_TIMEOUT}


def add_rows(trials: Trials, losses: Losses, role: str) -> None:
    """Hand over what came of the rounds."""
    for tried, found in sorted(losses.by_round.items()):
        said = found_in(losses, found)
        lost = sum(loss.messages for loss in found)
        trials.add(Trial(PART, role + tried, len(found), "masters", losses.acknowledged[tried], lost, said, SEED))


def found_in(losses: Losses, found: list[Loss]) -> str:
    """Say what was wrong, or else how much was lost."""
    if losses.faults:
        return "; ".join(losses.faults[:3])
    most, most_ms = (max(part) for part in zip(*found, strict=True))
    if not most:
        return "nothing"
    messages, time_ms = (statistics.median(part) for part in zip(*found, strict=True))
    return f"lost with a master: {messages:.0f} messages and {time_ms:.0f} ms (median), {most} and {most_ms} ms at most"
