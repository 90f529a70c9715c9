"""The file that tells which `rocketlet up` serves a store."""

import os
import pathlib

import msgspec
import pytest

from rocketlet.cli.instances import FILE_NAME, Instance, find_instance, process_start, stop_hint
from rocketlet.common.errors import DecodeError


@pytest.fixture
def instance(tmp_path: pathlib.Path) -> Instance:
    """Return what this process would tell."""
    return Instance(
        pid=os.getpid(),
        process_start=process_start(os.getpid()),
        store=str(tmp_path),
        is_ephemeral=False,
        addresses={"namesrv": "127.0.0.1:9876", "broker": "127.0.0.1:10911"},
        namesrv="127.0.0.1:9876",
        brokers=["127.0.0.1:10911"],
        master_count=1,
        began_at_ms=1,
        version="0.1.0",
    )


def test_it_is_found_while_its_process_has_it(instance: Instance, tmp_path: pathlib.Path) -> None:
    """The lock decides, not the file: a file whose process has ended is none."""
    assert find_instance(str(tmp_path)) is None
    descriptor = instance.register()
    assert descriptor is not None
    running = find_instance(str(tmp_path))
    assert running is not None
    with running:
        assert running.instance == instance
        assert running.is_running()
        os.close(descriptor)
        assert not running.is_running()
        running.wait_end()
    assert find_instance(str(tmp_path)) is None
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_many_may_ask_at_once(instance: Instance, tmp_path: pathlib.Path) -> None:
    """Who asks does not hold up others, and is not taken for the process."""
    (tmp_path / FILE_NAME).write_bytes(msgspec.json.encode(instance))
    descriptor = os.open(tmp_path / FILE_NAME, os.O_RDONLY)
    try:
        assert find_instance(str(tmp_path)) is None
        assert find_instance(str(tmp_path)) is None
    finally:
        os.close(descriptor)


def test_end_removes_the_file(instance: Instance, tmp_path: pathlib.Path) -> None:
    """Also when somebody has removed it before, or the directory is gone."""
    descriptor = instance.register()
    assert descriptor is not None
    instance.unregister()
    instance.unregister()
    assert not list(tmp_path.iterdir())
    os.close(descriptor)


def test_directory_that_cannot_be_written(instance: Instance, caplog: pytest.LogCaptureFixture) -> None:
    """A server goes on without, and says what does not work therefore."""
    gone = msgspec.structs.replace(instance, store=f"{instance.store}/gone")
    assert gone.register() is None
    assert "rocketlet status and down will not know of this process" in caplog.text


def test_damaged_file(instance: Instance, tmp_path: pathlib.Path) -> None:
    """It is an error to name, and leaves no file open."""
    descriptor = instance.register()
    assert descriptor is not None
    (tmp_path / FILE_NAME).write_text("{")
    with pytest.raises(DecodeError, match=FILE_NAME):
        find_instance(str(tmp_path))
    assert stop_hint(str(tmp_path)) == ""
    os.close(descriptor)


def test_hint_how_it_is_stopped(instance: Instance, tmp_path: pathlib.Path) -> None:
    """It is a command for a shell; if a process is asked for, only of the one that serves the store."""
    store = tmp_path / "a store"
    store.mkdir()
    descriptor = msgspec.structs.replace(instance, store=str(store)).register()
    assert descriptor is not None
    expected = f"; rocketlet down --store '{store}' stops it"
    assert stop_hint(str(store)) == stop_hint(str(store), os.getpid()) == expected
    assert stop_hint(str(store), os.getpid() + 1) == ""
    os.close(descriptor)
    assert stop_hint(str(store)) == ""
