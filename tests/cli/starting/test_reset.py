"""`rocketlet up --reset`: the files of a store go, and nothing else."""

import os
import pathlib
import re
import tarfile

import pytest
from command_line import CommandLine, Refuse, Start

from rocketlet.cli.starting.reset import StoreReset
from rocketlet.client import Message, Producer
from rocketlet.common.errors import ConfigError

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
EVERYTHING = (
    *("commitlog/00000000000000000000", "consumequeue/orders/0/00000000000000000000", "index/20261127031627123"),
    *("batchconsumequeue/%RETRY%g/11/00000000000006000000", "consumequeue_ext/orders/0/00000000000000000000"),
    *("timerlog/00000000000104857600", "timerwheel", "checkpoint", "abort", "rocketlet.json", "rocketlet.log"),
    *("config/topics.json", "config/topics.json.bak", "config/consumerOffset.json.tmp", "config/broker.properties"),
    *("config/timercheck", "config/tables.journal", "config/subscriptionGroup.json.damaged", "namesrv/kvConfig.json"),
)
FOREIGN = (
    *(
        "notes.txt",
        "commitlog/notes.txt",
        "commitlog/0000",
        "consumequeue/orders/0/notes",
        "config/app.json",
        "src/main.py",
    ),
    *("index/20261127", "rocksdbstore/CURRENT", "config/nginx.properties"),
)


def write(root: pathlib.Path, names: tuple[str, ...]) -> None:
    """Make files."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes(5_000))


def files_of(root: pathlib.Path) -> set[str]:
    """Return the names of all files."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink()}


def test_all_that_brokers_make_goes(tmp_path: pathlib.Path) -> None:
    """Empty directories go with it; the lock stays, since somebody may wait for it."""
    write(tmp_path, EVERYTHING)
    reset = StoreReset(str(tmp_path))
    assert reset.run()
    assert {path.name for path in tmp_path.iterdir()} == {"lock"}
    assert str(reset).startswith(f"--reset has removed {len(EVERYTHING)} files (")
    assert str(reset).endswith(f" bytes on disk) from {os.path.realpath(tmp_path)}")


def test_what_is_not_of_a_store_stays(tmp_path: pathlib.Path) -> None:
    """Files of other names or in other places, links, and directories with them; some are named."""
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, ("kept",))
    store = tmp_path / "store"
    write(store, (*EVERYTHING, *FOREIGN))
    (store / "commitlog" / f"{7:020}").symlink_to(elsewhere / "kept")
    (store / "consumequeue" / "linked").symlink_to(elsewhere)
    (store / "index" / f"{8:017}").mkdir()
    reset = StoreReset(str(store))
    assert reset.run()
    links = {f"commitlog/{7:020}", "consumequeue/linked"}
    assert files_of(store) == {*FOREIGN, *links, "lock"}
    assert (elsewhere / "kept").exists()
    assert reset.count == len(EVERYTHING)
    assert set(reset.left) == {*FOREIGN, *links} - {"src/main.py", "rocksdbstore/CURRENT"} | {"src", "rocksdbstore"}
    assert re.search(r" and has left what is not of a store: (\S+, ){4}\S+ and \d+ more$", str(reset))


@pytest.mark.parametrize("names", [FOREIGN, ("config/topics.json",), ("commitlog/notes.txt", "index/main.css")])
def test_directory_that_is_no_store_is_left_alone(tmp_path: pathlib.Path, names: tuple[str, ...]) -> None:
    """It may have folders of the same names."""
    write(tmp_path, names)
    with pytest.raises(ConfigError, match="is none: nothing is removed"):
        StoreReset(str(tmp_path)).run()
    assert files_of(tmp_path) == set(names)


def test_store_of_another_format_is_left_alone(tmp_path: pathlib.Path) -> None:
    """A broker with its queues in RocksDB has other files; which ones is not known here."""
    names = (*EVERYTHING, "consumequeue/CURRENT")
    write(tmp_path, names)
    with pytest.raises(ConfigError, match="is not built"):
        StoreReset(str(tmp_path)).run()
    assert files_of(tmp_path) == set(names)


def test_nothing_is_there(tmp_path: pathlib.Path) -> None:
    """An empty directory, and one that is still to be made."""
    assert not StoreReset(str(tmp_path)).run()
    assert not StoreReset(str(tmp_path / "later")).run()


async def test_start_is_on_an_empty_store(command: CommandLine, start: Start, tmp_path: pathlib.Path) -> None:
    """What was sent before is gone, and one line says what was removed."""
    running = start("up", "--store", "store", *FREE_PORTS)
    async with Producer("cli", nameserver=running.addresses["namesrv"]) as producer:
        await producer.send(Message("old", b"old"))
    assert running.stop()[0] == 0
    (tmp_path / "store" / "notes.txt").touch()
    running = start("up", "--store", "store", "--reset", *FREE_PORTS)
    listed = command("topic", "list", "--namesrv", running.addresses["namesrv"])
    assert "old" not in listed.stdout.split()
    code, _, said = running.stop()
    assert code == 0
    first = re.escape(str(tmp_path / "store"))
    removed = rf"rocketlet: --reset has removed \d+ files \([\d,]+ bytes on disk\) from {first} "
    assert re.match(rf"{removed}and has left what is not of a store: notes\.txt\n", said)


def test_stores_of_several_brokers(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """All go, whatever the number of brokers is now; so one directory serves another layout."""
    for options in (("--brokers", "2"), ("--reset",), ("--reset", "--brokers", "3")):
        started = command("up", "--background", "--store", "store", *options, *FREE_PORTS)
        assert started.returncode == 0, started.stderr
        assert command("down", "--store", "store").returncode == 0
    assert not (tmp_path / "store" / "commitlog").exists()
    assert (tmp_path / "store" / "broker-c" / "commitlog").exists()


def test_store_that_is_in_use(start: Start, refuse: Refuse, tmp_path: pathlib.Path) -> None:
    """It is not touched."""
    running = start("up", "--store", "store", *FREE_PORTS)
    before = files_of(tmp_path / "store")
    assert "is in use by another process" in refuse("up", "--store", "store", "--reset", *FREE_PORTS)
    assert files_of(tmp_path / "store") == before
    assert running.stop()[0] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ephemeral",), "--ephemeral and --reset contradict each other"),
        (("--set", "storePathCommitLog=log"), "--reset and storePathCommitLog contradict each other"),
    ],
)
def test_contradictions(refuse: Refuse, options: tuple[str, ...], said: str) -> None:
    """Nothing to remove, and files that would not be."""
    assert said in refuse("up", "--reset", *options, *FREE_PORTS)


def test_shown_settings_remove_nothing(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """`--print-config` starts nothing, and so removes nothing."""
    write(tmp_path / "store", EVERYTHING)
    assert command("up", "--reset", "--store", "store", "--print-config").returncode == 0
    assert files_of(tmp_path / "store") == set(EVERYTHING)


@pytest.mark.parametrize("recorded", ["plain", "killed", "delay-retry", "batchcrc"])
def test_store_of_an_official_broker(vectors: pathlib.Path, tmp_path: pathlib.Path, recorded: str) -> None:
    """All its files are known; by-products of parts that rocketlet does not have are left to it."""
    with tarfile.open(vectors / "store" / f"{recorded}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = {path.parent for path in tmp_path.rglob("commitlog")}
    reset = StoreReset(str(root))
    assert reset.run()
    assert reset.count > 5
    assert set(reset.left) <= {"compaction", "rocksdbstore"}
