"""What was tried against the store and what was lost, and the page that says so.

A test that tries something marks itself with ``@pytest.mark.durability`` and adds a ``Trial`` to the fixture
``trials`` before it asserts anything about it; how much it tries, it asks ``trials.rounds(few, many)``: few in an
ordinary run, many when the page is written. ``make durability`` runs all tests with the marker with
``--durability-page FILE`` and so writes the page, whose rows are these trials in the order of their parts. A part of
which nothing ran keeps what the file says about it.
"""

import importlib.metadata
import pathlib
import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

HEAD = """# Durability

What was tried to make the store lose an acknowledged message, and what was lost. `make durability` runs all of it and
writes this page; it is not edited by hand. *Acknowledged* counts the messages that a sender was told to be stored (on
disk, where the row is about power loss), *lost* those of them that were missing, doubled or changed afterwards.
"""
_TABLE = ["| tried | how often | acknowledged | lost | found | seeds |", "|---|---:|---:|---:|---|---|"]


@dataclass(frozen=True)
class Trial:
    """A row of the page: ``count`` times something was tried (``unit``: states, cycles, flips, rounds)."""

    part: str
    tried: str
    count: int
    unit: str
    acknowledged: int
    lost: int
    found: str = "nothing"
    seeds: str = ""


@dataclass(frozen=True)
class Part:
    """A section of the page: what it is about, and how to run it alone."""

    name: str
    about: str
    command: str


PARTS = (
    Part(
        "Crash points",
        "A recorder on the file seam keeps every write, truncation, sync, rename and unlink of a workload. For each of"
        " these operations the directory is built again as a power loss would leave it: only what was flushed,"
        " everything, or a drawn part of the rest, with torn writes, missing names and lengths that did not arrive."
        " In the rows of a broker, one starts on each state and is judged by its answers: a message counts as"
        " acknowledged in the moment in which its sender was answered. In those of a store, each state is read by an"
        " export, opened, compared message for message, key for key, written on, stopped and opened once more.",
        "pytest -m durability tests/durability",
    ),
    Part(
        "Kill",
        "A broker process under load is ended by SIGKILL at random moments and started again; every acknowledged"
        " message is read back.",
        "pytest -m durability tests/interop",
    ),
    Part(
        "Lost machines",
        "A master with a slave, each a process, is ended by SIGKILL under load, and its store is thrown away. Every"
        " message that it acknowledged is looked for in what the slave has, at the queue and offset of its answer;"
        " FLUSH_SLAVE_TIMEOUT is no acknowledgement. Then the store of the slave goes on as that of the master, is read"
        " once more, and gets an empty slave, until the next master is lost; up to twelve in a row. SYNC_MASTER, with"
        " `inSyncReplicas=2`, may lose nothing. Under ASYNC_MASTER what the slave has is the beginning of what was"
        " acknowledged; how much it lacks is measured, with both on one machine. A bad link is paused, slow,"
        " half open, or cut again and again, while messages are sent, heals until both logs are equal, and is bad again"
        " when the master is lost.",
        "pytest -m durability tests/interop/test_lost_machines.py",
    ),
    Part(
        "Rot",
        "Bits are flipped and files cut at random places of every kind of file. Each is detected or harmless, never"
        " served as good data, and never a crash. *Lost* counts the messages that were missing, moved or changed in any"
        " of the rounds and nobody told; the rounds of a row spoil copies of one store.",
        "pytest -m durability tests/store",
    ),
    Part(
        "Other brokers",
        "The Java broker and rocketlet take turns on one directory, after clean stops and after kills.",
        "pytest -m durability tests/interop",
    ),
)


class Trials:
    """Collects the trials of one run."""

    def __init__(self, page: pathlib.Path | None) -> None:
        self._page = page
        self._names: set[str] = set()
        self.rows: list[Trial] = []
        self.outcomes: dict[str, str] = {}

    @property
    def is_thorough(self) -> bool:
        """Whether the page is being written."""
        return self._page is not None

    def rounds(self, few: int, many: int) -> int:
        """Return how often to try: few times, or many when the page is being written."""
        return many if self.is_thorough else few

    def add(self, trial: Trial) -> None:
        """Take a row."""
        assert trial.part in {part.name for part in PARTS}, f"{trial.part} is no part of the page"
        self.rows.append(trial)

    def add_kills(self, what: str, cycles: int, sent: int, lost: int, faults: Sequence[str], seeds: str) -> None:
        """Take the row of kills on one store."""
        shown = "; ".join(faults[:3]) or "nothing"
        self.add(Trial("Kill", f"{what}; on one store", cycles, "cycles", sent, lost, shown, seeds))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which tests try something."""
        self._names = {item.nodeid for item in session.items if item.get_closest_marker("durability")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what did not pass."""
        if report.nodeid in self._names and not report.passed:
            self.outcomes[report.nodeid.removeprefix("tests/")] = report.outcome

    def pytest_sessionfinish(self) -> None:
        """Write the page when it was asked for."""
        if self._page is not None:
            before = self._page.read_text() if self._page.exists() else ""
            self._page.write_text(format_page(self.rows, self.outcomes, datetime.now(UTC), before))


def format_page(rows: Iterable[Trial], outcomes: Mapping[str, str], at: datetime, before: str = "") -> str:
    """Write the page in place of the one ``before``; ``outcomes`` are the tests that did not pass."""
    by_part: dict[str, list[Trial]] = defaultdict(list)
    for row in rows:
        by_part[row.part].append(row)
    lines = [HEAD.rstrip()]
    for part in PARTS:
        found = by_part[part.name]
        table = _format_rows(found, at) if found else _kept_rows(before, part.name)
        lines += ["", f"## {part.name}", "", part.about, "", *table]
        lines += ["", f"Alone: `.venv/bin/{part.command} --durability-page=PAGE`"]
    if outcomes:
        lines += ["", "## Not passed", "", *(f"- `{name}`: {outcome}" for name, outcome in sorted(outcomes.items()))]
    return "\n".join(lines) + "\n"


def _format_rows(rows: list[Trial], at: datetime) -> list[str]:
    return [*_TABLE, *map(_format_row, rows), "", f"Run on {at:%Y-%m-%d} by {_versions()}."]


def _kept_rows(page: str, part: str) -> list[str]:
    section = page.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    if "\nRun on " not in section:
        return ["Not run here."]
    return section[section.index("| ") : section.index("\nAlone:")].strip().split("\n")


def _format_row(row: Trial) -> str:
    count = f"{row.count:,} {row.unit}"
    cells = (row.tried, count, f"{row.acknowledged:,}", f"{row.lost:,}", row.found, row.seeds)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _versions() -> str:
    return (
        f"rocketlet {importlib.metadata.version('rocketlet')}, {platform.python_implementation()}"
        f" {platform.python_version()}, {platform.system()} {platform.release()}"
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer ``--durability-page``."""
    parser.addoption("--durability-page", type=pathlib.Path, help="try many times and write the durability page")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the run."""
    config.pluginmanager.register(Trials(config.getoption("--durability-page")), "durability-trials")


@pytest.fixture(scope="session")
def trials(request: pytest.FixtureRequest) -> Trials:
    """Return what this run has tried so far."""
    found = request.config.pluginmanager.get_plugin("durability-trials")
    assert isinstance(found, Trials), "registered above"
    return found
