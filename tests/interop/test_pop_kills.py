"""A broker that is killed at any moment loses no message that was popped, and hides none for longer than its lease."""

import asyncio
import pathlib
import random

import pytest
from durability_page import Trials
from killing.popped import PopLedger
from killing.victim import Victim

SEED = "plover"
OFTEN = {"flushConsumerOffsetInterval": "300"}
"""The offsets are saved between two kills: else all messages would be read again from the queues."""
SETTINGS = {
    "leases in memory": OFTEN,
    "each lease written at once": {**OFTEN, "enablePopBufferMerge": "false"},
    "SYNC_FLUSH": {**OFTEN, "flushDiskType": "SYNC_FLUSH"},
}
MOST_ANSWERS = 400


@pytest.mark.durability
@pytest.mark.feature("O10")
@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.timeout(1800, func_only=True)
def test_popped_messages_come_again_after_every_kill(how: str, trials: Trials, tmp_path: pathlib.Path) -> None:
    """Under sends, pops, acknowledgements and changes side by side; now and then it is killed while it starts, too."""
    cycles, choose = trials.rounds(2, 30), random.Random(f"{SEED} {how}")
    victim, ledger = Victim(tmp_path / "store", SETTINGS[how], choose), PopLedger(choose)
    victim.start()
    for _ in range(cycles):
        answers = choose.randrange(20, MOST_ANSWERS)
        asyncio.run(ledger.run(victim.server.broker, answers, victim.kill))
        if choose.random() < 0.2:
            victim.kill_while_opening()
        victim.start()
        asyncio.run(ledger.drain(victim.server.broker))
    victim.kill()
    faults = [f"{body!r} has not come again in time" for body in ledger.late]
    trials.add_kills(f"POP, {how}", cycles, ledger.stored, len(ledger.late), faults, SEED)
    assert ledger.late == []
    assert ledger.stored > 5 * cycles
