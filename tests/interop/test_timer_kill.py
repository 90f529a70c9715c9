"""A broker that is killed while delayed and timer messages wait loses none, and delivers none twice."""

import pathlib
import random

import pytest
from durability_page import Trials
from interop.traffic import SMALL_FILES
from killing.raw_load import deliveries_after_kills
from killing.timed import SETTINGS, TimedBook, time_until_killed, wait_for_the_rest

SEED = "avocet"
MOST_ANSWERS = 500


@pytest.mark.durability
@pytest.mark.feature("L6", "L8", "H6")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.timeout(1800, func_only=True)
def test_timer_messages_survive_every_kill(flush: str, trials: Trials, tmp_path: pathlib.Path) -> None:
    """Each that was acknowledged is delivered once, whenever the broker was killed, and none that was recalled."""
    cycles, book, chance = trials.rounds(3, 40), TimedBook(), random.Random(f"{SEED} {flush}")
    settings = {**SMALL_FILES, **SETTINGS, "flushDiskType": flush}
    delivered = deliveries_after_kills(
        tmp_path / "store",
        settings,
        cycles,
        lambda server: time_until_killed(server, book, chance, chance.randrange(1, MOST_ANSWERS)),
        wait_for_the_rest,
    )
    faults = book.faults(delivered)
    trials.add_kills(f"{flush}, timer messages", cycles, len(book.sent), len(book.lost(delivered)), faults, SEED)
    assert faults == []
    assert len(book.sent) > 20 * cycles
    assert book.recalled
