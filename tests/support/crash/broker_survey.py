"""Goes through the crash points of a broker: rebuilds states of its disk and has each judged by a broker's answers."""

import pathlib
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crash.broker_verify import BrokerVerification
from crash.broker_world import Promises, run_broker
from crash.disk import Disk, Image
from crash.recorder import Mark
from crash.survey import crash_points

from rocketlet.common.errors import RocketletError

KINDS: Final = ("certain", "everything", "sample", "hole")


class LostState(NamedTuple):
    """A state that a broker does not serve as it should; ``folder`` keeps it as the power loss left it."""

    seed: str
    position: int
    kind: str
    reason: str
    folder: pathlib.Path
    lost: int

    def __str__(self) -> str:
        where = f"workload {self.seed}, after operation {self.position}, {self.kind}"
        return f"{where}: {self.reason}\n  kept in {self.folder}"


@dataclass
class BrokerSurvey:
    """One workload; ``required`` counts the answered messages of all states together.

    States are built below ``workplace``, better in memory; those that fail are kept in ``folder``.
    """

    folder: pathlib.Path
    workplace: pathlib.Path
    seed: str
    steps: int
    is_sync: bool
    points: int = 0
    states: int = 0
    required: int = 0
    failures: list[LostState] = field(default_factory=list[LostState])

    async def run(self, share: float, kinds: Sequence[str] = KINDS, *, most_failures: int = 5) -> None:
        """Judge this share of the crash points, each in one of the kinds; stop when too many have failed."""
        lived = self.workplace / "lived"
        lived.mkdir()
        world = await run_broker(lived, self.seed, self.steps, is_sync=self.is_sync)
        trace, chance = world.recorder.trace, random.Random(self.seed)
        points = crash_points(trace)
        self.points = len(points)
        chosen = set(chance.sample(points, round(share * len(points))))
        disk, promises = Disk(), Promises()
        for position, item in enumerate(trace, 1):
            disk.apply(item)
            if isinstance(item, Mark):
                promises.add(item.fact)
            if position in chosen and len(self.failures) < most_failures:
                await self._judge(position, chance.choice(kinds), disk, promises, world.clock.now_ms())

    async def _judge(self, position: int, kind: str, disk: Disk, promises: Promises, now_ms: int) -> None:
        self.states += 1
        folder, image = self.workplace / f"state-{self.states}", _image(disk, kind, f"{self.seed}:{position}")
        _write(image, folder)
        certain = b"".join(data for path, data in disk.certain().files.items() if "/commitlog/" in path)
        judge = BrokerVerification(folder / "store", promises, certain, now_ms, is_sync=self.is_sync)
        try:
            await judge.run()
        except (AssertionError, RocketletError, OSError, ValueError, LookupError) as error:
            kept = self.folder / f"{self.seed}-{position}-{kind}"
            _write(image, kept)
            reason = f"{type(error).__name__}: {error}"
            self.failures.append(LostState(self.seed, position, kind, reason, kept, judge.lost))
        shutil.rmtree(folder)
        self.required += len(judge.required)


def _write(image: Image, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    image.write(str(folder))


def _image(disk: Disk, kind: str, seed: str) -> Image:
    drawn = {"sample": disk.sample, "hole": disk.hole}
    whole = {"certain": disk.certain, "everything": disk.everything}
    return drawn[kind](seed) if kind in drawn else whole[kind]()
