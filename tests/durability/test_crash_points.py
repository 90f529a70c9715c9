"""Power loss at every operation of a workload: what was acknowledged is there, and the store goes on."""

import pathlib
import subprocess
import sys

import pytest
from crash.disk import Disk
from crash.ledger import Ledger
from crash.recorder import Item, Mark, Recorder
from crash.steps import STEPS, run_workload
from crash.survey import CRASH_SEED, StateName, Survey, crash_seeds
from crash.world import World
from durability_page import Trial, Trials

STEP_COUNT = 20
STATE_FILES = {"topics.json", "consumerOffset.json", "delayOffset.json", "consumerFilter.json"}


@pytest.mark.durability
@pytest.mark.feature("S26", "H6")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("policy", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_power_loss_at_every_operation(policy: str, tmp_path: pathlib.Path, trials: Trials) -> None:
    """Each state of the disk opens with every message that was flushed, and takes new ones."""
    seeds = crash_seeds(trials.rounds(1, 12))
    surveys = [Survey(tmp_path / seed, seed, STEP_COUNT, is_sync=policy == "SYNC_FLUSH") for seed in seeds]
    for survey in surveys:
        survey.run(trials.rounds(50, 100) / 100)
    failures = [failure for survey in surveys for failure in survey.failures]
    points, states = sum(survey.points for survey in surveys), sum(survey.states for survey in surveys)
    trials.add(
        Trial(
            "Crash points",
            f"a store, {policy}, {len(seeds)} workloads with {points:,} operations",
            states,
            "states",
            sum(survey.required for survey in surveys),
            sum(failure.lost for failure in failures),
            "; ".join(str(failure.name) for failure in failures) or "nothing",
            " ".join(seeds),
        )
    )
    assert not failures, f"{CRASH_SEED}={seeds[0]}\n" + "\n".join(map(str, failures))
    assert states >= points // 2


def test_workload_is_the_same_each_time(tmp_path: pathlib.Path) -> None:
    """A seed gives the same operations and facts, so the name of a state is enough to build it again."""
    traces: list[list[Item]] = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        traces.append(run_workload(tmp_path / name, "yew", 10, is_sync=True).recorder.trace)
    assert traces[0] == traces[1]


def test_workload_goes_through_all_steps(tmp_path: pathlib.Path) -> None:
    """The workload rolls files of the log, queues and index over, and acknowledges messages with every step."""
    world = run_workload(tmp_path, "yew", 24, is_sync=True)
    ledger = Ledger()
    for item in world.recorder.trace:
        if isinstance(item, Mark):
            ledger.add(item.fact)
    assert len(STEPS) > 15
    assert ledger.acknowledged_end > 3 * world.config.segment_bytes
    assert len(ledger.required(0)) > 50
    assert len({one.topic for one in ledger.required(0)}) > 8
    assert {path.rpartition("/")[2] for path in ledger.saved} == STATE_FILES


class _Forgetful(Recorder):
    """Leaves out of the trace what a careless store would not do."""

    forgets = ""

    def sync(self, descriptor: int) -> None:
        """Leave out syncs of files."""
        if self.forgets != "files":
            super().sync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Leave out syncs of directories."""
        if self.forgets != "directories":
            super().sync_directory(path)


@pytest.mark.parametrize("forgotten", ["files", "directories"])
def test_missing_sync_is_found(forgotten: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that forgot to flush its files, or their names, would fail: the states show what was lost."""
    monkeypatch.setattr(_Forgetful, "forgets", forgotten)
    monkeypatch.setattr("crash.world.Recorder", _Forgetful)
    survey = Survey(tmp_path, "yew", 5, is_sync=True)
    survey.run(0.3)
    assert any("acknowledged" in failure.reason for failure in survey.failures)


def test_clean_stop_leaves_nothing_to_lose(tmp_path: pathlib.Path) -> None:
    """After a clean stop, a power loss leaves the very files that the store wrote."""
    world = World(tmp_path, "yew", is_sync=False)
    for step in STEPS:
        step.do(world)
    world.stop()
    disk = Disk()
    for item in world.recorder.trace:
        disk.apply(item)
    certain, everything = disk.certain(), disk.everything()
    paths = {*certain.files, *everything.files}
    assert {path for path in paths if certain.files.get(path) != everything.files.get(path)} == {"store/lock"}
    assert "store/abort" not in certain.files


def test_state_is_built_again_by_its_name(tmp_path: pathlib.Path) -> None:
    """The command that a failure prints builds that state and says that it holds what it should."""
    name = str(StateName("yew", 5, is_sync=True, position=200, kind="3"))
    command = [sys.executable, str(pathlib.Path(__file__).with_name("state.py")), name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(f"{name} holds all ")
    assert str(StateName.parse(name)) == name
