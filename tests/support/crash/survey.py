"""Goes through the crash points of a workload: rebuilds states of the disk and verifies each.

A state is named ``<workload>:<steps>:<sync|async>:<position>:<kind>``: the seed of the workload, how long it is, its
flush policy, after how many items of the trace the power went, and what is left: ``certain``, ``everything`` or the
number of a sample. The name is all it takes to build it again.
"""

import os
import pathlib
import random
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crash.disk import Disk, Image
from crash.ledger import Ledger
from crash.recorder import Item, Mark
from crash.steps import run_workload
from crash.verify import Verification
from crash.world import STORE, World

from rocketlet.common.errors import RocketletError

CERTAIN, EVERYTHING, SAMPLES = "certain", "everything", ("1", "2")


CRASH_SEED: Final = "ROCKETLET_CRASH_SEED"  # repeats a run; without it each has seeds of its own


def crash_seeds(count: int) -> list[str]:
    """Return the seeds of so many workloads; all follow from the first."""
    seeds = [os.environ.get(CRASH_SEED) or secrets.token_hex(3)]
    chance = random.Random(seeds[0])
    return seeds + [f"{chance.getrandbits(24):06x}" for _ in range(1, count)]


class StateName(NamedTuple):
    """What it takes to build a state again."""

    workload: str
    steps: int
    is_sync: bool
    position: int
    kind: str

    def __str__(self) -> str:
        return f"{self.workload}:{self.steps}:{'sync' if self.is_sync else 'async'}:{self.position}:{self.kind}"

    @classmethod
    def parse(cls, text: str) -> "StateName":
        """Read a name."""
        workload, steps, policy, position, kind = text.split(":")
        return cls(workload, int(steps), policy == "sync", int(position), kind)


class Failure(NamedTuple):
    """A state that does not hold what it should; ``folder`` keeps it."""

    name: StateName
    reason: str
    folder: pathlib.Path
    lost: int

    def __str__(self) -> str:
        alone = f".venv/bin/python tests/durability/state.py {self.name}"
        return f"{self.name}: {self.reason}\n  kept in {self.folder}; alone: {alone}"


@dataclass
class Survey:
    """The crash points of one workload; ``required`` counts the acknowledged messages of all states together."""

    folder: pathlib.Path
    workload: str
    steps: int
    is_sync: bool
    states: int = 0
    points: int = 0
    required: int = 0
    failures: list[Failure] = field(default_factory=list[Failure])
    _world: World | None = None

    @property
    def world(self) -> World:
        """The workload, run when it is first needed."""
        if self._world is None:
            lived = self.folder / "lived"
            lived.mkdir(parents=True)
            self._world = run_workload(lived, self.workload, self.steps, is_sync=self.is_sync)
        return self._world

    def run(self, share: float, *, most_failures: int = 5) -> None:
        """Verify a state of this share of the crash points, each of a kind by chance; stop when many have failed."""
        points, chance = crash_points(self.world.recorder.trace), random.Random(self.workload)
        self.points = len(points)
        chosen = set(chance.sample(points, round(share * len(points))))
        for position, disk, ledger in self._moments():
            if position in chosen and len(self.failures) < most_failures:
                kind = chance.choice((CERTAIN, EVERYTHING, *SAMPLES))
                self._verify(self._name(position, kind), disk, ledger)

    def run_one(self, name: StateName) -> None:
        """Verify one state."""
        for position, disk, ledger in self._moments():
            if position == name.position:
                self._verify(name, disk, ledger)

    def _name(self, position: int, kind: str) -> StateName:
        return StateName(self.workload, self.steps, self.is_sync, position, kind)

    def _moments(self) -> Iterator[tuple[int, Disk, Ledger]]:
        disk, ledger = Disk(), Ledger()
        for position, item in enumerate(self.world.recorder.trace, 1):
            disk.apply(item)
            if isinstance(item, Mark):
                ledger.add(item.fact)
            yield position, disk, ledger

    def _verify(self, name: StateName, disk: Disk, ledger: Ledger) -> None:
        self.states += 1
        folder = self.folder / f"state-{self.states}"
        folder.mkdir()
        image = _image(disk, name)
        image.write(str(folder))
        check = Verification(str(folder / STORE), self.world.config_at(folder), ledger, is_sync=self.is_sync)
        try:
            check.run()
        except (AssertionError, RocketletError, OSError, ValueError, LookupError) as error:
            shutil.rmtree(folder)
            folder.mkdir()
            image.write(str(folder))
            reason = f"{type(error).__name__}: {error}"
            self.failures.append(Failure(name, reason, folder, check.missing))
        else:
            shutil.rmtree(folder)
        self.required += check.required


def crash_points(trace: Sequence[Item]) -> list[int]:
    """Return the positions before an operation: facts that follow one another hold together."""
    return [n for n in range(1, len(trace) + 1) if n == len(trace) or not isinstance(trace[n], Mark)]


def _image(disk: Disk, name: StateName) -> Image:
    if name.kind == CERTAIN:
        return disk.certain()
    return disk.everything() if name.kind == EVERYTHING else disk.sample(str(name))
