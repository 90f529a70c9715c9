"""Power loss at the operations of a broker's disk, judged by what clients were and are answered."""

import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from crash.broker_survey import KINDS, BrokerSurvey
from crash.survey import CRASH_SEED, crash_seeds
from durability_page import Trial, Trials

import rocketlet.broker.send.send as send_module
import rocketlet.store.commitlog.log_end as log_end_module
import rocketlet.store.recovery.recovery as recovery_module
from rocketlet.store.files.file_sync import Done
from rocketlet.store.files.files import Files
from rocketlet.store.files.segments import SegmentFile
from rocketlet.store.flush_plan import FlushPlan
from rocketlet.store.recovery.flusher import Flusher, LogWork

STEPS = 8


@pytest.fixture(autouse=True)
def blocking_calls() -> None:
    """Let the loop's thread block: it builds disks, and the recorder looks at files."""


@pytest.fixture
def workplace() -> Iterator[pathlib.Path]:
    """Return a folder for many small files, in memory where the system has such a place."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:  # noqa: S108 # one of its own
        yield pathlib.Path(folder)


async def survey(
    seeds: Iterable[str], policy: str, folders: tuple[pathlib.Path, pathlib.Path], share: float, *kinds: str
) -> list[BrokerSurvey]:
    """Go through the workloads of these seeds; with kinds, until one fails."""
    surveys: list[BrokerSurvey] = []
    kept, workplace = folders
    for seed in seeds:
        (workplace / seed).mkdir()
        surveys.append(BrokerSurvey(kept, workplace / seed, seed, STEPS, is_sync=policy == "SYNC_FLUSH"))
        await surveys[-1].run(share, kinds or KINDS, most_failures=1 if kinds else 5)
        if kinds and surveys[-1].failures:
            break
    return surveys


@pytest.mark.durability
@pytest.mark.feature("S26", "H6")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("policy", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_broker_serves_what_it_answered(
    policy: str, tmp_path: pathlib.Path, workplace: pathlib.Path, trials: Trials
) -> None:
    """After a power loss a broker starts, serves each message that was answered, and nothing that comes and goes."""
    seeds = crash_seeds(trials.rounds(1, 12))
    surveys = await survey(seeds, policy, (tmp_path, workplace), trials.rounds(50, 100) / 100)
    failures = [failure for survey in surveys for failure in survey.failures]
    trials.add(
        Trial(
            "Crash points",
            f"a broker, {policy}, {len(seeds)} workloads with {sum(survey.points for survey in surveys):,} operations",
            sum(survey.states for survey in surveys),
            "states",
            sum(survey.required for survey in surveys),
            sum(failure.lost for failure in failures),
            "; ".join(f"{failure.seed}:{failure.position}" for failure in failures) or "nothing",
            " ".join(seeds),
        )
    )
    assert not failures, f"{CRASH_SEED}={seeds[0]}\n" + "\n".join(map(str, failures))
    assert all(survey.states >= survey.points // 2 for survey in surveys)
    assert all(survey.required for survey in surveys)


Fault = Callable[[pytest.MonkeyPatch], None]


def answer_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Sends do not wait for the disk."""

    def never(*_: object) -> bool:
        return False

    patch.setattr(send_module, "_waits_for_store", never)


def end_flushes_when_they_begin(patch: pytest.MonkeyPatch) -> None:
    """The log counts as flushed before the sync, and who waits for that is told."""
    flush_log = Flusher._flush_log  # pyright: ignore[reportPrivateUsage] # the very step that must come first
    request_log = Flusher.request_log
    told: dict[Done, None] = {}

    def request(flusher: Flusher, work: LogWork, done: Done | None = None) -> None:
        if done is not None:
            told[done] = None
        request_log(flusher, work, done)

    def flush_early(flusher: Flusher, work: LogWork) -> None:
        flusher.flushed = work.reaches
        for done in tuple(told):
            done(None)
        told.clear()
        flush_log(flusher, work)

    patch.setattr(Flusher, "request_log", request)
    patch.setattr(Flusher, "_flush_log", flush_early)


def take_a_wrong_checksum(patch: pytest.MonkeyPatch) -> None:
    """Recovery does not look at the checksum of bodies."""
    check_record = log_end_module.check_record

    def check(*place: Any, **how: Any) -> int:
        return check_record(*place, **{**how, "checks_crc": False})

    for module in (log_end_module, recovery_module):
        patch.setattr(module, "check_record", check)


def leave_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    """Recovery leaves standing what lies behind the end of the log."""

    def cut(_: Files, segments: list[SegmentFile], end: int) -> list[SegmentFile]:
        return [segment for segment in segments if segment.base_offset < end]

    patch.setattr(recovery_module, "cut_log", cut)


def let_the_checkpoint_run_ahead(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint says that the queues are on the disk as soon as the log is."""
    raise_checkpoint = FlushPlan._raise_checkpoint  # pyright: ignore[reportPrivateUsage] # the only place that knows

    def raise_too_far(plan: FlushPlan, next_at_ms: int) -> None:
        raise_checkpoint(plan, next_at_ms)
        ahead = plan._checkpoint._replace(queues_at_ms=next_at_ms - 1)  # pyright: ignore[reportPrivateUsage] # as above
        plan._checkpoint = ahead  # pyright: ignore[reportPrivateUsage] # as above

    patch.setattr(FlushPlan, "_raise_checkpoint", raise_too_far)


@pytest.mark.parametrize(
    ("fault", "policy", "kinds"),
    [
        (answer_before_the_flush, "SYNC_FLUSH", ("certain",)),
        (end_flushes_when_they_begin, "SYNC_FLUSH", ("certain",)),
        (take_a_wrong_checksum, "ASYNC_FLUSH", ("hole",)),
        (leave_a_torn_tail, "ASYNC_FLUSH", ("hole",)),
        (let_the_checkpoint_run_ahead, "SYNC_FLUSH", ("certain",)),
    ],
)
async def test_fault_is_seen(
    fault: Fault,
    policy: str,
    kinds: tuple[str, ...],
    tmp_path: pathlib.Path,
    workplace: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker with the fault does not pass, though as few states are judged of a kind as by the test above."""
    fault(monkeypatch)
    seeds = ("ash", "birch", "cedar", "elm", "fir", "hazel")
    surveys = await survey(seeds, policy, (tmp_path, workplace), 0.5 / len(KINDS), *kinds)
    assert surveys[-1].failures, f"{len(surveys)} workloads have not shown it"
