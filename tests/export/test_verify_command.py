"""``rocketlet export verify``, and the options of ``rocketlet export`` for much, as they are typed."""

import json
import pathlib
import shutil

import pytest
from command_line import Run, run_in_process
from javastores import JavaStores
from logbuilder import LogBuilder
from pyarrow import parquet


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs ``rocketlet export`` and returns exit code, stdout and stderr."""
    return run_in_process(capsys, "export")


def test_directory_verifies_until_a_part_is_missing(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """What was exported by several processes is proved to be there; without one of the files it is not."""
    out, report = f"{tmp_path}/out/", tmp_path / "report.json"
    store = java_stores["plain"]
    code, shown, _ = run(store, "--to", out, "--jobs", 2, "--split-bytes", 40_000, "--report", report)
    assert (code, shown.splitlines()[-1][:11]) == (0, "proof holds")
    files = sorted((tmp_path / "out").iterdir())
    code, shown, _ = run("verify", report, out)
    assert (code, shown.splitlines()[-1][:27]) == (0, "verified: 413 rows of 13 qu")
    assert "  OneQueue queue 0: 230 rows, offsets 0 to 229" in shown.splitlines()
    lost = parquet.read_metadata(files[2]).num_rows
    files[2].unlink()
    code, shown, _ = run("verify", report, out, "--quiet")
    assert code == 1
    assert lost > 0
    assert shown.startswith("difference: ")
    assert "missing queue offset" in shown


def test_parts_are_replaced_only_when_told(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """A directory with parts is refused; with --overwrite its parts are replaced and other files are kept."""
    out = tmp_path / "out"
    assert run(java_stores["plain"], "--to", f"{out}/", "--split-bytes", 40_000, "--jobs", 1)[0] == 0
    (out / "notes.txt").touch()
    before = len(list(out.iterdir()))
    code, _, err = run(java_stores["batchcrc"], "--to", out)
    assert (code, "--overwrite" in err, len(list(out.iterdir()))) == (2, True, before)
    assert run(java_stores["batchcrc"], "--to", out, "--overwrite")[0] == 0
    assert {path.name for path in out.iterdir()} == {"notes.txt", "part-00000.parquet"}


def test_columns_and_queues_are_picked(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """--columns decides on columns and their order, --queue on rows; system topics bring their columns."""
    to = tmp_path / "out.parquet"
    assert run(java_stores["plain"], "--to", to, "--columns", "queueOffset, queueId", "--queue", 1)[0] == 0
    table = parquet.read_table(to)
    assert table.schema.names == ["queueOffset", "queueId"]
    assert {row["queueId"] for row in table.to_pylist()} == {1}
    store, levels = java_stores["delay-retry"], ("--delay-levels", "7d")
    assert run(store, "--to", to, "--overwrite", "--include-system-topics", *levels)[0] == 0
    rows = [row for row in parquet.read_table(to).to_pylist() if row["state"] == "delayed"]
    assert {(row["dueTimestamp"] - row["storeTimestamp"]).days for row in rows} == {7}


def test_push_down_says_what_it_excluded(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """With --push-down the rows are the same, and report and proof speak of what was read."""
    to, report = tmp_path / "out.parquet", tmp_path / "report.json"
    code, out, _ = run(java_stores["plain"], "--to", to, "--topic", "OneQueue", "--push-down", "--report", report)
    assert (code, parquet.read_metadata(to).num_rows) == (0, 230)
    assert out.splitlines()[-1].startswith("proof holds for what pushed filters do not exclude")
    (store,) = json.loads(report.read_text())["stores"]
    assert store["pushed"][0] == "--topic OneQueue"
    assert run("verify", report, to)[0] == 0


def test_pattern_that_nothing_fits_has_no_rows(run: Run, log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """A day without messages has no files: then that is right, and rows that should be there are missed."""
    log.add()
    report = tmp_path / "report.json"
    for topic, code in (("Nothing", 0), ("Topic", 1)):
        run(log.save(), "--to", tmp_path / f"{topic}.parquet", "--topic", topic, "--report", report)
        assert run("verify", report, tmp_path / "topic=*")[0] == code


@pytest.mark.parametrize(("word", "rows", "code"), [("prefix", 1, 1), ("skip", 2, 1), ("fail", None, 2)])
def test_damage_is_treated_as_told(
    run: Run, log: LogBuilder, tmp_path: pathlib.Path, word: str, rows: int | None, code: int
) -> None:
    """--on-damage says what is exported of a damaged store; the report names the damage and proves nothing."""
    for number in range(3):
        log.add(b"body %d" % number)
    path = log.save() / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"body 1", b"bodY 1", 1))
    to, report = tmp_path / "out.parquet", tmp_path / "report.json"
    found, out, err = run(log.root, "--to", to, "--on-damage", word, "--report", report)
    assert found == code
    assert f"{path} at position {log.offsets[1]}" in out + err
    if rows is None:
        assert not to.exists()
    else:
        assert parquet.read_metadata(to).num_rows == rows
        (store,) = json.loads(report.read_text())["stores"]
        assert (store["crcFailures"], bool(store["skipped"])) == (1, word == "skip")
        assert run("verify", report, to)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["verify"], "REPORT"),
        (["verify", "nowhere.json", "out.parquet"], "nowhere.json cannot be read"),
        (["{plain}", "--to", "o.parquet", "--columns", "topics"], "there is no column topics; did you mean topic?"),
        (["{plain}", "--to", "o.parquet", "--delay-levels", "soon"], "messageDelayLevel holds 'soon'"),
        (["{plain}", "--to", "o.parquet", "--on-damage", "ignore"], "--on-damage"),
        (["{plain}/*.gone", "--to", "o.parquet"], "no store matches"),
        (["s3://bucket/store", "--to", "o.parquet", "--storage-options", "[]"], "not a JSON object"),
    ],
)
def test_bad_input_is_one_sentence(run: Run, java_stores: JavaStores, arguments: list[str], sentence: str) -> None:
    """Exit code 2 and one line that says what is wrong."""
    code, out, err = run(*(argument.format(plain=java_stores["plain"]) for argument in arguments))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert sentence in err


def test_store_called_verify_is_exported_by_its_path(run: Run, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """Only the word alone is the command."""
    shutil.copytree(java_stores["batchcrc"], tmp_path / "verify")
    assert run(tmp_path / "verify", "--to", tmp_path / "out.parquet")[0] == 0
