"""What a start makes of damaged timer files, in words and numbers: what it says, and when which message comes then."""

import logging
import pathlib
import shutil

import pytest
from damage import audit, change, read_cases, without_paths
from msgspec.structs import replace
from stores import StoreDirectory
from timers import SECOND_MS, TimerWorld, timer_directory

from rocketlet.common.errors import ConfigError, StoreError

STARTS = pathlib.Path(__file__).parent / "timer_starts.txt"
BEGIN_MS = 1_750_000_000_000
LAST_S = 1_500
DUE_S = {f"{number:02d}": 2 + number * 7 % 40 for number in range(24)} | {"far": 1_400}
UNSAVED_S = {f"{number}": number - number % 2 for number in range(30, 38)} | {"now": 5}
RECALLED = "04"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoreDirectory]:
    """Give one store that was ``killed`` after 5 seconds, when some of its messages were saved, and one ``stopped``."""
    folder = tmp_path_factory.mktemp("timers")
    timers = {"wheel_slots": 2_000, "roll_window_setting": 900, "file_bytes": 52 * 6 + 16}
    directory = timer_directory(folder / "stopped", **timers)
    directory.config = replace(directory.config, segment_bytes=4_096)
    world = TimerWorld(directory)
    for body, at_s in DUE_S.items():
        world.send(body.encode(), BEGIN_MS + at_s * SECOND_MS)
    world.recall(f"U{RECALLED}", BEGIN_MS + DUE_S[RECALLED] * SECOND_MS)
    world.pass_ms(5 * SECOND_MS)
    world.save()
    for body, at_s in UNSAVED_S.items():
        world.send(body.encode(), BEGIN_MS + at_s * SECOND_MS + 500)
    world.work()
    shutil.copytree(world.directory.root, folder / "killed")
    world.stop()
    killed = StoreDirectory(folder / "killed")
    killed.config = replace(world.directory.config, root=str(killed.root), log_directories=())
    killed.now_ms = world.now_ms
    return {"stopped": world.directory, "killed": killed}


def damaged_copy(stores: dict[str, StoreDirectory], case: str, folder: pathlib.Path) -> StoreDirectory:
    """Copy a store and do what the case says; ``wait SECONDS`` starts it later."""
    name, _, steps = case.partition(": ")
    twin = StoreDirectory(folder / name)
    shutil.copytree(stores[name].root, twin.root)
    twin.config = replace(stores[name].config, root=str(twin.root), log_directories=())
    twin.now_ms = stores[name].now_ms
    for step in filter(None, map(str.strip, steps.split(";"))):
        verb, _, seconds = step.partition(" ")
        if verb == "wait":
            twin.now_ms += int(seconds) * SECOND_MS
        else:
            change(twin.root, step)
    return twin


def told(directory: StoreDirectory, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Start, let all messages come, and stop; return what was said, where the timers stood, and what came when."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "rocketlet"):
        try:
            world = TimerWorld(directory)
        except (ConfigError, StoreError) as error:
            directory.close_all()
            return without_paths([f"refused: {error}"], directory)
        world.work()
        found = [state(world)]
        world.pass_to(BEGIN_MS + LAST_S * SECOND_MS)
        found += [*came(world), state(world)]
        world.stop()
    said = [f"{record.levelname.lower()}: {record.getMessage()}" for record in caplog.records]
    return [*without_paths(said, directory), *found, f"then {audit(directory).lines()[-1]}"]


def state(world: TimerWorld) -> str:
    """Return where timers stand."""
    timers = world.timers
    following = "none" if timers.next_tick is None else f"{timers.next_tick - BEGIN_MS // SECOND_MS}"
    return (
        f"at {timers.queue_offset}, read to {timers.read_tick - BEGIN_MS // SECOND_MS}, next {following}, "
        f"{timers.count_waiting()} wait, log {timers.log.first_base}..{timers.log.end}"
    )


def came(world: TimerWorld) -> list[str]:
    """Return which messages came too late or early, twice, or not at all."""
    due_s = {body: at_s + (body in UNSAVED_S) for body, at_s in (DUE_S | UNSAVED_S).items()}
    at_s = [(bytes(one.body).decode(), (one.stored_at_ms - BEGIN_MS) / SECOND_MS) for one in world.records()]
    bodies = [body for body, _ in at_s]
    found = {
        "lost": [body for body in due_s if body not in bodies and body != RECALLED],
        "twice": [body for body in due_s if bodies.count(body) > 1],
        "untimely": [f"{body} at {seconds:g}" for body, seconds in at_s if seconds != due_s[body]],
    }
    return [f"{word} {', '.join(which)}" for word, which in found.items() if which]


@pytest.mark.parametrize(
    ("case", "expected"), read_cases(STARTS), ids=lambda value: value if isinstance(value, str) else ""
)
def test_start_after_damage_of_timer_files(
    case: str,
    expected: list[str],
    stores: dict[str, StoreDirectory],
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Messages that are not named come once and in time."""
    assert told(damaged_copy(stores, case, tmp_path), caplog) == expected
