"""``rocketlet export`` as it is typed."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Protocol

import pytest
from javastores import JavaStores
from logbuilder import LogBuilder
from pyarrow import parquet

from rocketlet.cli.main import main


class Run(Protocol):
    """Runs the command; returns exit code, stdout and stderr."""

    def __call__(self, *arguments: object, to: str = "out.parquet") -> tuple[object, str, str]:
        """Run it."""
        ...


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> Run:
    """Return a function that runs the command and returns exit code, stdout and stderr."""

    def run_export(*arguments: object, to: str = "out.parquet") -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["export", *map(str, arguments), "--to", str(tmp_path / to)])
        shown = capsys.readouterr()
        return caught.value.code, shown.out, shown.err

    return run_export


def bodies(path: pathlib.Path) -> list[bytes]:
    """Return the bodies of an exported file."""
    return [row["body"] for row in parquet.read_table(path).to_pylist()]


def test_export_writes_rows_report_and_proof(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """Two stores become one file; the report ends with the proof, and percents go to stderr."""
    code, out, err = run(java_stores["plain"], java_stores["killed"], "--report", tmp_path / "report.json")
    assert code == 0
    assert parquet.read_metadata(tmp_path / "out.parquet").num_rows == 413 + 653
    assert out.splitlines()[-1].startswith("proof holds")
    assert "  KillOne queue 0: 200 rows, offsets 0 to 199" in out.splitlines()
    assert err.splitlines()[-1] == "exported 100 %"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["proved"]
    assert [store["rows"] for store in report["stores"]] == [413, 653]


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["--topic", "OneQueue"], 230),
        (["--topic", "OneQueue", "--topic", "BatchTopic"], 248),
        (["--tag", "TagA"], 10),
        (["--key", "k0"], 1),
        (["--from", "2100-01-01"], 0),
        (["--until", "2100-01-01", "--include-system-topics", "--no-crc"], 413),
        (["--until", "0"], 0),
    ],
)
def test_options_select_rows(
    run: Run, java_stores: JavaStores, tmp_path: pathlib.Path, arguments: list[str], rows: int
) -> None:
    """Each option narrows the rows, and the report still accounts for the whole log."""
    code, out, _ = run(java_stores["plain"], *arguments)
    assert code == 0
    assert parquet.read_metadata(tmp_path / "out.parquet").num_rows == rows
    assert f"  413 messages = {rows} rows + {413 - rows} left out" in out.splitlines()


@pytest.mark.parametrize("to", ["out.jsonl", "out.arrow", "out"])
def test_format_comes_from_suffix_or_option(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path, to: str) -> None:
    """A name without a known suffix needs ``--format``."""
    code, _, err = run(java_stores["batchcrc"], to=to)
    if to == "out":
        assert (code, err.count("\n")) == (2, 1)
        code, _, err = run(java_stores["batchcrc"], "--format", "jsonl", to=to)
    assert code == 0
    assert (tmp_path / to).stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere is not a store: it does not exist"),
        (["{plain}", "{plain}"], "is given twice"),
        (["{plain}", "--from", "yesterday"], "--from is 'yesterday', neither epoch milliseconds nor an ISO 8601 time"),
        (["{plain}", "--segment-bytes", "4096"], "has 65536 bytes, mappedFileSizeCommitLog is 4096"),
        (["{plain}", "--segment-bytes", "-1"], "--segment-bytes"),
        (["{plain}", "--format", "csv"], "--format"),
        ([], "STORE..."),
    ],
)
def test_bad_input_is_one_sentence(
    run: Run, java_stores: JavaStores, tmp_path: pathlib.Path, arguments: list[str], sentence: str
) -> None:
    """Exit code 2, one line that says what is wrong, and no file."""
    code, out, err = run(*(argument.format(plain=java_stores["plain"]) for argument in arguments))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert sentence in err
    assert not (tmp_path / "out.parquet").exists()


def test_existing_file_is_kept_unless_told(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """A file is replaced only with ``--overwrite``."""
    (tmp_path / "out.parquet").write_bytes(b"mine")
    code, _, err = run(java_stores["batchcrc"])
    assert (code, (tmp_path / "out.parquet").read_bytes()) == (2, b"mine")
    assert "--overwrite" in err
    assert run(java_stores["batchcrc"], "--overwrite")[0] == 0
    assert parquet.read_metadata(tmp_path / "out.parquet").num_rows == 24


def test_incomplete_log_exits_1(run: Run, log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """A gap in a queue is reported as a fault; the rows that are there are written."""
    log.add(queue_offset=0)
    log.add(queue_offset=2)
    code, out, _ = run(log.save())
    assert code == 1
    assert out.splitlines()[-1].endswith("missing queue offsets: 1, the first is 1")
    assert parquet.read_metadata(tmp_path / "out.parquet").num_rows == 2


def test_damage_exits_1_after_what_comes_before_it(run: Run, log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """Of a damaged store the prefix is exported; stderr, report and JSON name file, position and reason."""
    for number in range(3):
        log.add(b"body %d" % number)
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"body 1", b"bodY 1", 1))
    code, out, err = run(log.root, "--report", tmp_path / "report.json")
    reason = f"{path} at position {log.offsets[1]}: the body does not have its checksum"
    assert code == 1
    assert err.splitlines()[-1] == f"rocketlet: {log.root} is exported up to damage only: {reason}"
    assert out.splitlines()[-1] == f"fault: {log.root}: stopped before the end of the log, {reason}"
    assert bodies(tmp_path / "out.parquet") == [b"body 0"]
    report = json.loads((tmp_path / "report.json").read_text())
    assert not report["proved"]
    assert report["stores"][0]["stopped"] == {"file": str(path), "position": log.offsets[1], "reason": reason}


def test_end_of_the_log_is_told(run: Run, log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """Report and JSON say where a torn log ends and what stands there; that is no fault."""
    for number in range(3):
        log.add(b"body %d" % number)
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: log.offsets[2] + 60].ljust(4096, b"\0"))
    code, out, _ = run(log.root, "--report", tmp_path / "report.json")
    reason = "the lengths of the parts do not add up to the size of the record"
    assert code == 0
    assert f"  the log ends in {path} at position {log.offsets[2]}: {reason}" in out.splitlines()
    (store,) = json.loads((tmp_path / "report.json").read_text())["stores"]
    assert store["stopped"] is None
    assert store["end"] == {
        "file": str(path),
        "position": log.offsets[2],
        "reason": reason,
        "unproved": "there are neither queues nor a checkpoint that tell",
    }


def test_wrong_body_does_not_stop_an_export_without_checks(run: Run, log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """With --no-crc all messages are exported, the changed one as it is."""
    for number in range(3):
        log.add(b"body %d" % number)
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"body 1", b"bodY 1", 1))
    assert run(log.root, "--no-crc")[0] == 0
    assert bodies(tmp_path / "out.parquet") == [b"body 0", b"bodY 1", b"body 2"]


def test_damage_of_one_store_leaves_the_others_whole(
    run: Run, log: LogBuilder, java_stores: JavaStores, tmp_path: pathlib.Path
) -> None:
    """A store after a damaged one is exported to its end."""
    for _ in range(2):
        log.add(b"body")
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"body", b"bodY", 1))
    code, out, _ = run(log.root, java_stores["plain"])
    assert code == 1
    assert parquet.read_metadata(tmp_path / "out.parquet").num_rows == 413
    faults = [line for line in out.splitlines() if line.startswith("fault:")]
    assert len(faults) == 1
    assert f"{log.root}: stopped before the end of the log, {path} at position 0: the body" in faults[0]


def test_topic_that_is_not_in_the_log_is_said(run: Run, java_stores: JavaStores) -> None:
    """A topic without a message in the log is named, since it may be misspelt."""
    code, _, err = run(java_stores["plain"], "--topic", "OneQueu")
    assert code == 0
    assert "no message of topic OneQueu is in the log; there is OneQueue" in err


def test_terminal_gets_a_progress_bar(java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """On a terminal there is a bar instead of lines."""
    terminal, end = os.openpty()
    command = [sys.executable, "-m", "rocketlet", "export", java_stores["plain"], "--to", tmp_path / "out.parquet"]
    subprocess.run(command, stderr=end, stdout=subprocess.DEVNULL, check=True, env={**os.environ, "TERM": "xterm"})
    os.close(end)
    shown = os.read(terminal, 65_536).decode()
    os.close(terminal)
    assert "exporting" in shown
    assert "━" in shown
    assert "exported 10 %" not in shown
