"""Timer messages against a plain model: whatever happens, each comes once, when its second is over."""

import os
import pathlib
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timers import SECOND_MS, TimerWorld, timer_directory

from examples import examples

SLOTS = 2_000  # a window of 940 s, so that messages roll
MOST_AHEAD_S = 4_000
MOST_UNSAVED_MS = 300_000


@dataclass
class Model:
    """What was sent and recalled; ``sloppy`` counts kills, after which some messages may come once more."""

    due_ms: dict[bytes, int] = field(default_factory=dict[bytes, int])
    recalled: set[bytes] = field(default_factory=set[bytes])
    sloppy: int = 0

    def expected(self, now_ms: int) -> set[bytes]:
        """Return what must have come by now."""
        return {body for body, due_ms in self.due_ms.items() if due_ms <= now_ms and body not in self.recalled}


class Play:
    """A world, its model, and what may happen to them."""

    def __init__(self, folder: pathlib.Path, chance: random.Random) -> None:
        directory = timer_directory(
            folder / "store", wheel_slots=SLOTS, roll_window_setting=SLOTS // 2, most_delay_seconds=MOST_AHEAD_S
        )
        self.world = TimerWorld(directory)
        self.model = Model()
        self.chance = chance
        self.kills = 0

    def send(self) -> None:
        """Some messages, several of them for the same second."""
        at_ms = self.world.now_ms + self._ahead_ms()
        for _ in range(self.chance.randrange(1, 6)):
            body = b"%d" % len(self.model.due_ms)
            self.world.send(body, at_ms)
            self.model.due_ms[body] = -(-at_ms // SECOND_MS) * SECOND_MS if at_ms > self.world.now_ms else at_ms
            at_ms += self.chance.choice((0, 0, 1, 999, 60_000))
            at_ms = min(at_ms, self.world.now_ms + MOST_AHEAD_S * SECOND_MS)

    def recall(self) -> None:
        """A message that is not due yet is recalled."""
        waiting = [body for body, due_ms in self.model.due_ms.items() if due_ms - SECOND_MS > self.world.now_ms]
        if waiting:
            body = self.chance.choice(waiting)
            self.world.recall(f"U{body.decode()}", self.model.due_ms[body] - SECOND_MS + 1)
            self.model.recalled.add(body)

    def work(self) -> None:
        """What has arrived is put into the wheel."""
        self.world.work()

    def wait(self) -> None:
        """Time passes; progress is saved now and then, as a broker does, but not at the end."""
        self._pass(self._ahead_ms() // self.chance.choice((1, 20)))

    def save(self) -> None:
        """Progress is saved."""
        self.world.save()

    def restart(self) -> None:
        """A clean stop, some time, a start."""
        self.world.stop()
        self.world.directory.now_ms += self.chance.choice((0, 500, 100_000))
        self.world.start()

    def kill(self) -> None:
        """The process is killed; what was delivered since the last save comes again."""
        self.kills += 1
        self.world.kill(f"life {self.kills}")
        self.world.start()
        self.model.sloppy += 1

    def check(self, *, is_lossy: bool = False) -> None:
        """Compare what came with what should have."""
        self.world.work()
        came = Counter(self.world.bodies())
        expected = self.model.expected(self.world.now_ms)
        assert set(came) >= expected
        if not is_lossy:
            assert set(came) == expected
            assert max(came.values(), default=1) <= 1 + self.model.sloppy
        for record in self.world.records():
            assert record.stored_at_ms >= self.model.due_ms[bytes(record.body)]

    def finish(self, *, is_lossy: bool = False) -> None:
        """Wait until everything must have come."""
        self._pass((MOST_AHEAD_S + 2) * SECOND_MS)
        self.check(is_lossy=is_lossy)
        assert self.world.delivery.due_at_ms is None
        self.world.stop()

    def _pass(self, milliseconds: int) -> None:
        while milliseconds > MOST_UNSAVED_MS:
            self.world.save()
            self.world.pass_ms(MOST_UNSAVED_MS)
            milliseconds -= MOST_UNSAVED_MS
        self.world.pass_ms(milliseconds)

    def _ahead_ms(self) -> int:
        return self.chance.choice((0, 1, 999, 1_000, 3_000, 61_500, 700_000, 1_200_000, 2_700_000, 3_900_000))


ORDERLY: tuple[Callable[[Play], None], ...] = (
    Play.send,
    Play.send,
    Play.send,
    Play.recall,
    Play.work,
    Play.wait,
    Play.wait,
    Play.save,
    Play.restart,
    Play.check,
)


def _play(steps: list[Callable[[Play], None]], seed: int, act: Callable[[Play], None]) -> None:
    folder = pathlib.Path(tempfile.mkdtemp())
    play = Play(folder, random.Random(seed))
    try:
        for step in steps:
            step(play)
        act(play)
    finally:
        play.world.timers.close()
        play.world.directory.close_all()
        shutil.rmtree(folder)


@pytest.mark.feature("L6", "L8")
@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.sampled_from(ORDERLY), max_size=40), st.integers(0, 2**32))
def test_messages_come_once_and_in_time(steps: list[Callable[[Play], None]], seed: int) -> None:
    """With any times, recalls and clean restarts, each message comes exactly once, and none that was recalled."""
    _play(steps, seed, Play.finish)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.sampled_from((*ORDERLY, Play.kill)), max_size=40), st.integers(0, 2**32))
def test_kills_lose_nothing(steps: list[Callable[[Play], None]], seed: int) -> None:
    """A killed broker loses no message; those that came since the last save may come once more."""
    _play(steps, seed, Play.finish)


def lose_wheel(store: pathlib.Path, _: random.Random) -> None:
    """The wheel is gone."""
    (store / "timerwheel").unlink(missing_ok=True)


def cut_wheel(store: pathlib.Path, chance: random.Random) -> None:
    """The wheel has another length."""
    _cut(store / "timerwheel", chance)


def zero_wheel(store: pathlib.Path, chance: random.Random) -> None:
    """A part of the wheel holds zeros."""
    _zero(store / "timerwheel", chance, 512)


def lose_log(store: pathlib.Path, _: random.Random) -> None:
    """The timer log is gone."""
    shutil.rmtree(store / "timerlog", ignore_errors=True)


def lose_log_file(store: pathlib.Path, chance: random.Random) -> None:
    """A file of the timer log is gone."""
    files = sorted((store / "timerlog").glob("*"))
    if files:
        chance.choice(files).unlink()


def empty_log_file(store: pathlib.Path, chance: random.Random) -> None:
    """A file of the timer log was made and never written, as its name alone had come to the disk."""
    files = sorted((store / "timerlog").glob("*"))
    if files:
        chance.choice(files).write_bytes(b"")


def zero_log(store: pathlib.Path, chance: random.Random) -> None:
    """A part of the timer log holds zeros."""
    files = sorted((store / "timerlog").glob("*"))
    if files:
        _zero(chance.choice(files), chance, 512)


def lose_check(store: pathlib.Path, _: random.Random) -> None:
    """How far the timers had come is not known."""
    (store / "config" / "timercheck").unlink(missing_ok=True)


def zero_check(store: pathlib.Path, _: random.Random) -> None:
    """The progress has been made, and never written."""
    path = store / "config" / "timercheck"
    if path.exists():
        path.write_bytes(bytes(path.stat().st_size))


DAMAGE = (
    lose_wheel,
    cut_wheel,
    zero_wheel,
    lose_log,
    lose_log_file,
    empty_log_file,
    zero_log,
    lose_check,
    zero_check,
)


@pytest.mark.parametrize("damage", DAMAGE)
@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(ORDERLY), min_size=5, max_size=30), st.integers(0, 2**32))
def test_damaged_files_lose_nothing(
    damage: Callable[[pathlib.Path, random.Random], None], steps: list[Callable[[Play], None]], seed: int
) -> None:
    """Whatever happens to the files of the timers, every message comes: they are read again from their topic."""

    def act(play: Play) -> None:
        play.world.kill("life 2")
        damage(play.world.directory.root, play.chance)
        play.world.start()
        play.finish(is_lossy=True)

    _play(steps, seed, act)


def _cut(path: pathlib.Path, chance: random.Random) -> None:
    if path.exists():
        os.truncate(path, chance.randrange(path.stat().st_size))


def _zero(path: pathlib.Path, chance: random.Random, size: int) -> None:
    _write(path, chance, bytes(size))


def _write(path: pathlib.Path, chance: random.Random, data: bytes) -> None:
    """Write to a place that is in use, if there is one."""
    if path.exists():
        content = path.read_bytes()
        used = [place for place in range(0, len(content), 4) if any(content[place : place + 4])]
        place = min(chance.choice(used or [0]), len(content) - len(data))
        path.write_bytes(content[:place] + data + content[place + len(data) :])
