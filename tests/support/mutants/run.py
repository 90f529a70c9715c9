"""Put faults into a part and see whether its tests notice (`make mutants`).

    export PYTHONPATH=tests/support
    python -m mutants.run store broker                  60 faults in each, chosen at random
    python -m mutants.run --seed 7 --count 100 store    the same ones again, or more
    python -m mutants.run --page docs/reference/testing.md      all parts; write their figures there

1. The tests of the part, and those that run it in their own process (``USERS``), run once under coverage: who runs
   which line, and for how long.
2. Of all changes that the operators can make in lines that a test runs, so many are chosen by a seed.
3. Each is made, alone, in a copy of the checkout; the tests of its module follow, then, in a run of their own, the
   others that run its line, those of its part first, one of each file in turn, the quickest first, until one fails
   (killed), takes too long (hung), or three minutes of them, as they took under coverage, are over (survived). A line
   that runs when the file is imported is run by all who run a line of its file, or whose file imports it.
4. A fault that no test can see, since the code means the same, is listed with its proof in `equivalents.json`.
"""

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import click
from mutants.operators import Mutation, find_mutations

ROOT: Final = Path(__file__).parents[3]
PARTS: Final = ("store", "broker", "namesrv", "remoting", "client", "export", "spark", "metrics", "console", "cli")
EQUIVALENTS: Final = Path(__file__).parent / "equivalents.json"
USERS: Final = {"store": ("tests/durability", "tests/broker"), "broker": ("tests/cost",)}
MOST_SECONDS: Final = 180.0  # of tests for one fault, as they took without it: under coverage, several times as long
_START_SECONDS: Final = 10.0
_SPARK_SECONDS: Final = 90.0  # until Spark has started on a machine that has other work
_RECORDING_SECONDS: Final = 1200  # of one test, since all are slow while who runs which line is written down
_TIMED_OUT: Final = " Timeout ++"  # says pytest-timeout
_SLOWER: Final = 5  # than without the fault is taken for hung
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".hypothesis", "target", "build", "node_modules"
)


@dataclass(frozen=True)
class Recording:
    """Who runs which line of a part."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, Sequence[str]]]
    imports: Mapping[str, set[str]]
    """The files that each file of tests imports: who compares numbers with a table runs no line of them."""

    def tests_of(self, file: str, mutation: Mutation) -> list[str]:
        """Return the tests that run a line: first those of the module, then those of the part, then the others.

        Those of the module are asked even if they run other lines of it only: what the line made may be kept in a cache
        or a fixture, which the first test has filled. Of the others the quickest of each file comes first, then a
        second one of each: a line that all tests run is seen by few of them, and those of one file are alike.
        """
        at_line = self.lines.get(file, {}).get(mutation.line, ())
        if not at_line and not mutation.at_import:
            return []
        everyone = self._everyone[file]
        importers = {name for name in self.seconds if file in self.imports.get(name.partition("::")[0], ())}
        own = {name for name in everyone if is_own(file, name)}
        folder = f"tests/{Path(file).parts[0]}/"

        def order(name: str) -> tuple[bool, bool, int, float, str]:
            return not is_own(file, name), not name.startswith(folder), self._places[name], self.seconds[name], name

        return sorted(everyone | importers if mutation.at_import else own.union(at_line), key=order)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        """How many tests of its file are quicker than a test."""
        passed = Counter[str]()
        places: dict[str, int] = {}
        for name in sorted(self.seconds, key=lambda name: (self.seconds[name], name)):
            file = name.partition("::")[0]
            places[name] = passed[file]
            passed[file] += 1
        return places

    @cached_property
    def _everyone(self) -> Mapping[str, set[str]]:
        """The tests that run any line of a file."""
        found = {file: {name for names in lines.values() for name in names} for file, lines in self.lines.items()}
        return defaultdict(set, found)


@dataclass(frozen=True)
class Fault:
    """A mutation of a file, and the tests that have to see it."""

    file: str
    mutation: Mutation
    tests: Sequence[str]

    @property
    def key(self) -> str:
        """What stays the same when other lines of the file change."""
        return f"{self.file}: {self.mutation.function or 'module'}: {self.mutation}"

    def __str__(self) -> str:
        return f"{self.file}:{self.mutation.line}: {self.mutation}"


@dataclass
class Verdicts:
    """What became of the faults of a part."""

    part: str
    outcomes: list[tuple[Fault, str]]

    def count(self, outcome: str) -> int:
        """Return how many ended so."""
        return sum(each == outcome for _, each in self.outcomes)

    @property
    def share(self) -> float:
        """How many of those that can be seen were seen; hung ones were."""
        visible = len(self.outcomes) - self.count("equivalent")
        return (self.count("killed") + self.count("hung")) / visible if visible else 1.0


class Workshop:
    """Copies of the checkout in which faults may be made, one for each worker."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._stamp = time.time()
        for number in range(workers):
            copy = directory / str(number) / "rocketlet"
            shutil.copytree(ROOT, copy, symlinks=True, ignore=_LEFT_OUT)
            (copy / ".venv").symlink_to(ROOT / ".venv")
            self._free.put(copy)
        self.sources = directory / "0" / "rocketlet"  # the checkout itself may be edited meanwhile

    def record(self, part: str) -> Recording:
        """Run the tests of a part and return who runs which line."""
        copy = self._free.get()
        target = copy.parent / f"{part}.json"
        command = ["-m", "coverage", "run", f"--source={copy / part}", f"--data-file={target}.data", "-m", "pytest"]
        command += ["-p", "mutants.recorder", f"--recording={target}", *_QUIETLY, f"tests/{part}"]
        command += [f"--timeout={_RECORDING_SECONDS}", *USERS.get(part, ())]
        _, ended = self._python(copy, command, None)
        if not target.exists():
            raise click.ClickException(f"the tests of {part} did not run:\n{ended}")
        found = json.loads(target.read_text())
        names = [name for name, _ in found["tests"]]
        lines = {
            file: {int(line): [names[number] for number in numbers] for line, numbers in of_file.items()}
            for file, of_file in found["lines"].items()
        }
        self._free.put(copy)
        files = {name.partition("::")[0] for name in names}
        return Recording(dict(found["tests"]), lines, {file: set(imported_files(copy / file)) for file in files})

    def judge(self, fault: Fault, seconds: Mapping[str, float]) -> str:
        """Make a fault and return what its tests say: killed, hung or survived."""
        copy = self._free.get()
        path = copy / fault.file
        source = path.read_bytes()
        try:
            self._write(path, fault.mutation.apply(source))
            own = [name for name in fault.tests if is_own(fault.file, name)]
            for tests in (own, fault.tests[len(own) :]):  # few files are collected faster than all
                if tests and (outcome := self._run(copy, tests, seconds)[0]) != "survived":
                    return outcome
            return "survived"
        finally:
            self._write(path, source)
            self._free.put(copy)

    def check(self, recording: Recording) -> None:
        """Refuse a part whose tests fail though there is no fault."""
        copy = self._free.get()
        tests = sorted(recording.seconds, key=recording.seconds.__getitem__)
        outcome, output = self._run(copy, tests, recording.seconds)
        if outcome != "survived":
            raise click.ClickException(f"tests fail without a fault, repair them first:\n{output[-2000:]}")
        self._free.put(copy)

    def _run(self, copy: Path, tests: Sequence[str], seconds: Mapping[str, float]) -> tuple[str, str]:
        """Run tests, of which only some are run if they take long, and return what they say, and their output."""
        chosen = list(_affordable(tests, seconds))
        arguments = copy.parent / "tests.txt"
        arguments.write_text("\n".join(chosen))
        start = _SPARK_SECONDS if any(name.startswith("tests/spark/") for name in chosen) else _START_SECONDS
        each = f"--timeout={start + _SLOWER * max(seconds[name] for name in chosen):.0f}"
        limit = 2 * start + _SLOWER * sum(seconds[name] for name in chosen)
        try:
            code, output = self._python(copy, ["-m", "pytest", "-x", *_QUIETLY, each, f"@{arguments}"], limit)
        except subprocess.TimeoutExpired:
            return "hung", f"they have not ended in {limit:.0f} s"
        if _TIMED_OUT in output:
            return "hung", output
        return "killed" if code else "survived", output

    def _write(self, path: Path, source: bytes) -> None:
        """Write a source with a time of its own, so that no compiled form of another is taken for its own."""
        path.write_bytes(source)
        self._stamp += 2
        os.utime(path, (self._stamp, self._stamp))

    def _python(self, copy: Path, command: Sequence[str], limit: float | None) -> tuple[int, str]:
        paths = [str(copy.parent), str(copy / "tests/support"), str(copy / "bench")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_ADDOPTS": ""}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment.pop("CI", None)
        environment["ROCKETLET_PURE_PYTHON"] = "1"  # else the compiled twins stand in for what is changed
        started = subprocess.Popen(
            [sys.executable, *command],
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output = started.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, 9)  # with the servers that the tests have started
            started.communicate()
            raise
        return started.returncode, output


def is_own(file: str, test: str) -> bool:
    """Say whether a test is one of the module itself."""
    return f"/test_{Path(file).stem}" in test


def imported_files(path: Path) -> Iterable[str]:
    """Yield the files of the package that a file of tests names in its imports, and some that are none."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            folder, *rest = node.module.split(".")
            if folder == "rocketlet":
                yield "/".join(rest) + ".py"
                yield from ("/".join([*rest, alias.name]) + ".py" for alias in node.names)


_QUIETLY: Final = ("-q", "--no-header", "--tb=no", "--durations=0", "-p", "no:cacheprovider", "-p", "no:xdist")


def _affordable(tests: Iterable[str], seconds: Mapping[str, float]) -> Iterable[str]:
    spent = 0.0
    for name in tests:
        spent += seconds[name]
        yield name
        if spent > MOST_SECONDS:
            return


def choose(sources: Path, part: str, recording: Recording, count: int, seed: int) -> list[Fault]:
    """Return so many faults of a part, by chance; those in lines that no test runs are left out."""
    faults: list[Fault] = []
    for path in sorted((sources / part).rglob("*.py")):
        file = str(path.relative_to(sources))
        for mutation in find_mutations(path.read_bytes()):
            tests = recording.tests_of(file, mutation)
            if tests:
                faults.append(Fault(file, mutation, tests))
    return random.Random(f"{part} {seed}").sample(faults, min(count, len(faults)))


def run_part(workshop: Workshop, part: str, count: int, seed: int, workers: int) -> Verdicts:
    """Judge faults of a part."""
    click.echo(f"{part}: running its tests once")
    recording = workshop.record(part)
    workshop.check(recording)
    equivalents: dict[str, str] = json.loads(EQUIVALENTS.read_text())

    def judge(fault: Fault) -> tuple[Fault, str]:
        outcome = "equivalent" if fault.key in equivalents else workshop.judge(fault, recording.seconds)
        if outcome != "killed":
            click.echo(f"  {outcome}: {fault}")
        return fault, outcome

    with ThreadPoolExecutor(workers) as pool:
        verdicts = Verdicts(part, list(pool.map(judge, choose(workshop.sources, part, recording, count, seed))))
    click.echo(_summary(verdicts))
    return verdicts


def _summary(verdicts: Verdicts) -> str:
    counts = Counter(outcome for _, outcome in verdicts.outcomes)
    text = ", ".join(f"{counts[each]} {each}" for each in ("killed", "hung", "survived", "equivalent"))
    return f"{verdicts.part}: {len(verdicts.outcomes)} faults, {text}: {100 * verdicts.share:.0f} % seen"


def write_page(page: Path, all_verdicts: Sequence[Verdicts], seed: int) -> None:
    """Replace the figures and survivors of these parts in a page, between its two marks; others keep theirs."""
    before, _, rest = page.read_text().partition("<!-- mutants -->\n")
    inside, _, after = rest.partition("<!-- end of mutants -->\n")
    told = inside.splitlines()
    rows: list[str] = []
    survivors: list[str] = []
    new = {each.part: each for each in all_verdicts}
    for part in PARTS:
        if part in new:
            rows.append(_row(new[part], seed))
            survivors += [f"- `{fault}`" for fault, outcome in new[part].outcomes if outcome == "survived"]
        else:
            rows += [line for line in told if line.startswith(f"| {part} |")]
            survivors += [line for line in told if line.startswith(f"- `{part}/")]
    table = ["| part | seed | faults | killed | hung | survived | equivalent | seen |", "|---" * 8 + "|", *rows]
    text = "\n".join([*table, "", "Survivors:", "", *(survivors or ["none"])])
    page.write_text(f"{before}<!-- mutants -->\n{text}\n<!-- end of mutants -->\n{after}")


def _row(verdicts: Verdicts, seed: int) -> str:
    counts = " | ".join(str(verdicts.count(each)) for each in ("killed", "hung", "survived", "equivalent"))
    share = f"{100 * verdicts.share:.0f} %"
    return f"| {verdicts.part} | {seed} | {len(verdicts.outcomes)} | {counts} | {share} |"


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--count", default=60, show_default=True, help="How many faults in each part.")
@click.option("--seed", type=int, help="Choose the same faults again.")
@click.option("--workers", default=2, show_default=True, help="How many at a time.")
@click.option("--page", type=click.Path(path_type=Path, exists=True), help="Write figures and survivors there.")
def main(parts: Sequence[str], count: int, seed: int | None, workers: int, page: Path | None) -> None:
    """Put faults into parts and see whether their tests notice."""
    seed = random.randrange(1 << 20) if seed is None else seed
    click.echo(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="rocketlet-mutants-") as directory:
        workshop = Workshop(Path(directory), workers)
        verdicts = [run_part(workshop, part, count, seed, workers) for part in parts or PARTS]
    for each in verdicts:
        click.echo(_summary(each))
    if page is not None:
        write_page(page, verdicts, seed)


if __name__ == "__main__":
    main()
