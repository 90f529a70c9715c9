"""Kills a broker under load, again and again, and compares what it serves afterwards with what it acknowledged.

    a cycle    load -> SIGKILL -> perhaps kills while it starts -> a reader on the files -> start -> read back
    a round    some cycles on one store; at its end everything is read once more, from the first offset on

Rules:

- The moment of a kill is a number of answers, or of steps that the process has made; both come from the seed.
- Files are so small that every cycle goes through several of each kind.
"""

import itertools
import pathlib
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from interop.driver import Driver
from killing.ledger import Ledger, Place
from killing.senders import JavaLoad, JavaStorm, Load, MixedLoad, OurLoad
from killing.victim import Victim

from rocketlet.export.columns.schema import pick_columns
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.write.log_reader import LogReader, ReadOptions

CYCLES_PER_ROUND = 20
MOST_ANSWERS = 600
SMALL_FILES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "flushIntervalConsumeQueue": "100",
}
# Each full file of the log may go at once; with pauses between files, this goes on while messages are sent.
RETENTION = {
    "fileReservedTime": "0",
    "deleteWhen": ";".join(map(str, range(24))),
    "deleteCommitLogFilesInterval": "10",
    "deleteConsumeQueueFilesInterval": "1",
    "deleteFileBatchMax": "30",
}


@dataclass
class Kills:
    """What came of some cycles, by the kind of kill."""

    cycles: Counter[str] = field(default_factory=Counter[str])
    acknowledged: Counter[str] = field(default_factory=Counter[str])
    lost: Counter[str] = field(default_factory=Counter[str])
    retired: int = 0
    faults: list[str] = field(default_factory=list[str])


class KillRound:
    """Cycles on one store."""

    def __init__(self, victim: Victim, loads: Mapping[str, Load], choose: random.Random, kills: Kills) -> None:
        self._retires = victim.settings.get("fileReservedTime") == RETENTION["fileReservedTime"]
        self._victim = victim
        self._loads = loads
        self._choose = choose
        self._kills = kills
        self._ledger = Ledger()

    def run(self, cycles: int) -> None:
        """Run the cycles; the broker runs before and after."""
        names = sorted(self._loads)
        for number in range(cycles):
            self._cycle(names[number % len(names)])
        self._read_again()
        self._kills.faults += self._ledger.faults
        self._kills.retired += sum(self._ledger.begins.values())

    def _cycle(self, name: str) -> None:
        ledger, known = self._ledger, len(self._ledger.acknowledged)
        self._kill_under_load(name)
        tried = f"under load of {name}"
        for _ in range(self._choose.choice((0, 0, 1, 3))):
            if self._victim.kill_while_opening():
                tried = f"under load of {name}, and while it starts"
        self._read_files()
        self._victim.start()
        self._victim.read_back(ledger)
        fresh = itertools.islice(ledger.acknowledged.items(), known, None)
        lost = [one for one, _ in fresh if ledger.is_lost(one)]
        if ledger.begins and not self._retires:
            self._kills.faults.append(f"queues begin at {ledger.begins}, and nothing was to be deleted")
        self._kills.cycles[tried] += 1
        self._kills.acknowledged[tried] += len(ledger.acknowledged) - known
        self._kills.lost[tried] += len(lost)
        self._kills.faults += [f"{one} was acknowledged at {ledger.acknowledged[one]} and is not there" for one in lost]

    def _kill_under_load(self, name: str) -> None:
        kill = self._victim.kill_while_stopping if self._choose.random() < 0.2 else self._victim.kill
        count = self._choose.randrange(1, MOST_ANSWERS)
        if self._retires:
            self._victim.begin_cleaning()
        self._loads[name].run(self._victim.server.namesrv, self._ledger, count, kill)

    def _read_files(self) -> None:
        """A reader finds everything that was acknowledged in the files that the killed process left."""
        schema = pick_columns(["topic", "queueId", "queueOffset", "body"])
        reading = LogReader(plan_stores([str(self._victim.store)]), ReadOptions(schema=schema))
        rows = [row for batch in reading for row in batch.to_pylist()]
        bodies: dict[Place, bytes] = {
            Place(row["topic"], row["queueId"], row["queueOffset"]): row["body"] for row in rows
        }
        self._kills.faults += reading.report.faults()
        queues = reading.report.stores[0].queues if self._retires else {}
        firsts = {key: queue.offsets.first or 0 for key, queue in queues.items()}
        for one, place in self._ledger.acknowledged.items():
            if bodies.get(place) != one.body and place.queue_offset >= firsts.get(place[:2], 0):
                self._kills.faults.append(f"{one} is not in the files at {place}")

    def _read_again(self) -> None:
        """What is served from the first offset on is what was served after each start."""
        again = Ledger()
        self._victim.read_back(again)
        self._ledger.begins |= again.begins
        before = {
            one: place
            for one, place in self._ledger.found.items()
            if place.queue_offset >= again.begins.get(place[:2], 0)
        }
        if again.found != before:
            changed = len(set(again.found.items()) ^ set(before.items()))
            self._kills.faults.append(f"{changed} messages are not served as they were before")


def run_kills(
    folder: pathlib.Path, cycles: int, seed: str, driver: Driver | None, settings: Mapping[str, str] = {}
) -> Kills:
    """Kill so often, on a new store every ``CYCLES_PER_ROUND``; with a driver also under load of the Java client."""
    kills = Kills()
    for number, start in enumerate(range(0, cycles, CYCLES_PER_ROUND)):
        choose = random.Random(f"{seed}-{number}")
        victim = Victim(folder / f"store-{number}", SMALL_FILES | dict(settings), choose)
        victim.start()
        with ExitStack() as stack:
            stack.callback(victim.kill)
            loads: dict[str, Load] = {"our client": OurLoad(choose)}
            if driver is not None:
                storm = stack.enter_context(JavaStorm(driver, victim.server.namesrv))
                loads |= {"the Java client": JavaLoad(storm), "both": MixedLoad(storm, OurLoad(choose))}
            KillRound(victim, loads, choose, kills).run(min(CYCLES_PER_ROUND, cycles - start))
    return kills
