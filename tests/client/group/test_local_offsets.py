"""The offset file of broadcasting consumers."""

import pathlib

import pytest

from rocketlet.client.group.offsets import LocalOffsetFile, format_offsets, offset_file_of
from rocketlet.common.errors import ConfigError
from rocketlet.common.message import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 10)
JAVA_TEXT = (
    b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:7\n\t}\n}'
)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> LocalOffsetFile:
    """Return a file in a directory that does not exist yet."""
    return LocalOffsetFile(tmp_path / "a" / "b" / "offsets.json")


@pytest.mark.feature("B21")
def test_path_is_that_of_java(tmp_path: pathlib.Path) -> None:
    """Client id without process id, then the group; the home directory unless told otherwise."""
    file = offset_file_of(str(tmp_path), ("10.0.0.1", "DEFAULT", ""), "cg")
    assert file.path == tmp_path / "10.0.0.1@DEFAULT" / "cg" / "offsets.json"
    at_home = offset_file_of(None, ("10.0.0.1", "one", "unit"), "cg")
    assert at_home.path == pathlib.Path.home() / ".rocketmq_offsets" / "10.0.0.1@one@unit" / "cg" / "offsets.json"


@pytest.mark.feature("B21")
def test_text_has_queues_as_keys() -> None:
    """As fastjson writes them, sorted, one in a line."""
    assert format_offsets({OTHER: 9, QUEUE: 7}) == (
        b'{\n\t"offsetTable":{\n'
        b'\t\t{"brokerName":"broker-a","queueId":0,"topic":"T"}:7,\n'
        b'\t\t{"brokerName":"broker-a","queueId":10,"topic":"T"}:9\n'
        b"\t}\n}"
    )


def test_nothing_is_stored_at_first(file: LocalOffsetFile) -> None:
    """A file that is not there, and one that is empty, hold no offsets."""
    assert file.read() == {}
    file.path.parent.mkdir(parents=True)
    file.path.touch()
    assert file.read() == {}


def test_offsets_of_other_queues_stay(file: LocalOffsetFile) -> None:
    """Two consumers of one host may share a file; the text before is kept beside it."""
    file.write({QUEUE: 1})
    before = file.path.read_bytes()
    file.write({OTHER: 2})
    assert file.read() == {QUEUE: 1, OTHER: 2}
    file.write({QUEUE: 3})
    assert file.read() == {QUEUE: 3, OTHER: 2}
    assert file.path.with_name("offsets.json.bak").read_bytes() != before
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]


def test_file_of_java_is_read(file: LocalOffsetFile) -> None:
    """Its text is spread over lines."""
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(JAVA_TEXT)
    assert file.read() == {QUEUE: 7}


@pytest.mark.parametrize("damage", [b"{", b'{"offsetTable":[1]}', b"\xff"])
def test_damaged_file_gives_way_to_the_one_before(file: LocalOffsetFile, damage: bytes) -> None:
    """Also for the next write; with both damaged, it is said what to do."""
    file.write({QUEUE: 1})
    file.write({QUEUE: 2})
    file.path.write_bytes(damage)
    assert file.read() == {QUEUE: 1}
    backup = file.path.with_name("offsets.json.bak")
    backup.write_bytes(damage)
    with pytest.raises(ConfigError, match="remove it to start anew"):
        file.read()
    backup.unlink()
    with pytest.raises(ConfigError, match=r"has no \.bak"):
        file.read()


def test_missing_file_gives_way_to_the_one_before(file: LocalOffsetFile) -> None:
    """A crash between the two renames leaves only the .bak."""
    file.write({QUEUE: 1})
    file.write({QUEUE: 2})
    file.path.unlink()
    assert file.read() == {QUEUE: 1}
