"""A broker that is killed while transactions run loses none, and delivers none twice."""

import pathlib
import random

import pytest
from durability_page import Trials
from interop.traffic import SMALL_FILES
from killing.deciders import SETTINGS, Book, decide_the_rest, decide_until_killed
from killing.raw_load import deliveries_after_kills

SEED = "plover"
MOST_ANSWERS = 400


@pytest.mark.durability
@pytest.mark.feature("T10", "H6")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.timeout(1800, func_only=True)
def test_transactions_survive_every_kill(flush: str, trials: Trials, tmp_path: pathlib.Path) -> None:
    """Each that was to be committed is delivered once, whether its commit was answered or not; no other is."""
    cycles, book, chance = trials.rounds(3, 40), Book(), random.Random(f"{SEED} {flush}")
    settings = {**SMALL_FILES, **SETTINGS, "flushDiskType": flush}
    delivered = deliveries_after_kills(
        tmp_path / "store",
        settings,
        cycles,
        lambda server: decide_until_killed(server, book, chance, chance.randrange(1, MOST_ANSWERS)),
        lambda address: decide_the_rest(address, book),
    )
    faults = book.faults(delivered)
    trials.add_kills(f"{flush}, transactions", cycles, len(book.opened), len(book.lost(delivered)), faults, SEED)
    assert faults == []
    assert len(book.opened) > 20 * cycles
    assert book.asked > cycles
