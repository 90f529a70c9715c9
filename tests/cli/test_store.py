"""``rocketlet store`` as it is typed."""

import json
import pathlib

import pytest
from command_line import Run, run_in_process
from stores import StoreDirectory, file_bytes

INDEX = ("--set", "maxHashSlotNum=50", "--set", "maxIndexNum=40")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs ``rocketlet store`` and returns exit code, stdout and stderr."""
    return run_in_process(capsys, "store")


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> StoreDirectory:
    """Give a store with 40 messages."""
    store = StoreDirectory(tmp_path / "store")
    store.fill(40)
    return store


def damage(directory: StoreDirectory) -> None:
    """Change a byte of the second message."""
    data = bytearray(directory.segment().read_bytes())
    data[data.index(b"000001x")] ^= 1
    directory.segment().write_bytes(data)


def test_check_of_a_sound_store(run: Run, directory: StoreDirectory) -> None:
    """Exit code 0, the report on stdout, percents on stderr."""
    code, out, err = run("check", directory.root, *INDEX)
    assert code == 0
    assert out.splitlines()[-1] == "sound"
    assert "40 records" in out
    assert err.splitlines()[-1] == "checked 100 %"


def test_check_of_a_damaged_store(run: Run, directory: StoreDirectory) -> None:
    """Exit code 1; the report as JSON names file, position and the message that was hit."""
    damage(directory)
    before = file_bytes(directory.root)
    code, out, _ = run("check", directory.root, "--json", *INDEX)
    assert code == 1
    report = json.loads(out)
    assert not report["sound"]
    (finding,) = report["findings"]
    assert finding["path"] == str(directory.segment())
    assert finding["hits"] == [{"topic": "T", "queue_id": 1, "queue_offset": 0, "unique_key": "ID00000001"}]
    assert file_bytes(directory.root) == before


@pytest.mark.parametrize("command", ["check", "repair"])
def test_store_that_cannot_be_read(run: Run, directory: StoreDirectory, command: str, tmp_path: pathlib.Path) -> None:
    """Exit code 2 and one sentence for what is no store, and for sizes that cannot be those of the files."""
    yes = ("--yes",) if command == "repair" else ()
    for place, reason in ((tmp_path / "nothing", "is not a store"), (directory.root, "maxIndexNum")):
        code, out, err = run(command, place, *yes)
        assert (code, out) == (2, "")
        (line,) = [line for line in err.splitlines() if not line.startswith("checked")]
        assert line.startswith("rocketlet: ")
        assert reason in line


def test_settings_come_from_a_file(run: Run, directory: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """The broker's own settings file serves."""
    path = tmp_path / "broker.conf"
    path.write_text("maxHashSlotNum=50\nmaxIndexNum=40\nbrokerName=other\n")
    assert run("check", directory.root, "-c", path)[0] == 0


def test_dry_run_only_says_it(run: Run, directory: StoreDirectory) -> None:
    """What would be done is printed, and nothing is."""
    damage(directory)
    before = file_bytes(directory.root)
    code, out, _ = run("repair", directory.root, "--dry-run", *INDEX)
    assert code == 0
    assert "cut the log at" in out
    assert file_bytes(directory.root) == before


def test_repair_asks_or_is_told(run: Run, directory: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """Where nobody can be asked, --yes is needed; then the store is sound, and the cut can be saved."""
    damage(directory)
    code, _, err = run("repair", directory.root, *INDEX)
    assert code == 2
    assert "--yes" in err
    code, out, _ = run("repair", directory.root, "--yes", "--save-cut", tmp_path / "saved", *INDEX)
    assert code == 0
    assert out.splitlines()[-1] == "sound"
    assert len(list((tmp_path / "saved" / "commitlog").iterdir())) == 3
    assert run("check", directory.root, *INDEX)[0] == 0


def test_repair_of_a_sound_store_changes_nothing(run: Run, directory: StoreDirectory) -> None:
    """There is nothing to do."""
    before = file_bytes(directory.root)
    code, out, _ = run("repair", directory.root, "--yes", *INDEX)
    assert (code, out) == (0, "nothing to repair\n")
    assert file_bytes(directory.root) == before


def test_store_in_use_is_not_repaired(run: Run, directory: StoreDirectory) -> None:
    """A store that a broker has open is refused; it can be checked."""
    directory.open()
    code, _, err = run("repair", directory.root, "--yes", *INDEX)
    assert code == 2
    assert "already open" in err
    assert run("check", directory.root, *INDEX)[0] == 0
    directory.close_all()
