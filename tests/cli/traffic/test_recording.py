"""The file of a recording: its bytes, what is read of one that is cut, and that no damage goes unseen."""

import pathlib
import re
import tracemalloc
from dataclasses import replace

import msgpack
import pytest
from received import received
from recordings import BEGUN_MS, read_recording, stored, write_recording

from rocketlet.cli.traffic.recording import MAGIC, RecordedMessage, RecordingHead, RecordingReader, RecordingWriter
from rocketlet.common.errors import ConfigError, DecodeError, StoreError

MEBIBYTE = 1024 * 1024


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a recording of three messages."""
    return write_recording(tmp_path / "file.rec", [stored(number, after_ms=number) for number in range(3)])


def test_any_msgpack_library_reads_it(path: pathlib.Path):
    """What the file is, then a checksum and a map for the head and for each message."""
    with path.open("rb") as file:
        name, head, *messages = msgpack.Unpacker(file)
    assert name == "rocketlet-recording-1"
    assert head[1] == {"begunTimestamp": BEGUN_MS, "topics": ["Old"]}
    assert messages[2][1] == {
        "topic": "Old",
        "brokerName": "broker-a",
        "queueId": 0,
        "queueOffset": 2,
        "tags": "paid",
        "keys": ["every", "k2"],
        "properties": {"größe": "5 公斤", "UNIQ_KEY": f"{2:032X}"},
        "body": b"2",
        "flag": -2,
        "bornTimestamp": BEGUN_MS + 1,
        "storeTimestamp": BEGUN_MS + 2,
    }


def test_bytes_of_version_1(tmp_path: pathlib.Path):
    """A file that was written today is read by every later version: these bytes do not change."""
    path = write_recording(tmp_path / "file.rec", [received(7)])
    assert path.read_bytes() == (
        b"\xb5rocketlet-recording-1"
        b"\x92\xce*\x98T\xa7\x82\xaebegunTimestamp\xcf\x00\x00\x01\x8b\xcf\xe5h\x00\xa6topics\x91\xa1T"
        b"\x92\xce*&\x18\x9c\x8b\xa5topic\xa1T\xaabrokerName\xa8broker-a\xa7queueId\x00\xabqueueOffset\x07"
        b"\xa4tags\xc0\xa4keys\x90\xaaproperties\x80\xa4body\xc4\x01x\xa4flag\x00\xadbornTimestamp\x00"
        b"\xaestoreTimestamp\x00"
    )


def test_messages_come_back(tmp_path: pathlib.Path):
    """Whatever an application can give them; what is of the pull and not of the message is left out."""
    message = stored(1)
    odd = replace(message, body=bytes(range(256)), flag=-(1 << 31), tags=None, keys=())
    odd.properties.update({"MIN_OFFSET": "0", "MAX_OFFSET": "9"})
    retried = replace(message, topic="Old", queue=message.queue._replace(topic="%RETRY%g"))
    first, second, third = read_recording(write_recording(tmp_path / "file.rec", [message, odd, retried]))
    assert first == RecordedMessage.of(message)
    assert (second.body, second.flag, second.tags, second.keys) == (bytes(range(256)), -(1 << 31), None, ())
    assert second.properties == {"größe": "5 公斤", "UNIQ_KEY": f"{1:032X}"}
    assert third.topic == "%RETRY%g"


def test_file_that_is_cut_is_read_up_to_its_last_whole_message(path: pathlib.Path):
    """Wherever a kill cuts it; how many bytes are left out is known, and the file is as it was."""
    whole = path.read_bytes()
    with RecordingReader(str(path)) as reader:
        first_at = reader.end
        ends = [recorded.end for piece in reader.pieces() for recorded in piece]
        assert (reader.end, reader.cut_bytes) == (len(whole), 0)
    for size in range(first_at, len(whole)):
        path.write_bytes(whole[:size])
        with RecordingReader(str(path)) as reader:
            found = [recorded.end for piece in reader.pieces() for recorded in piece]
            assert found == [end for end in ends if end <= size]
            assert reader.cut_bytes == size - (found or [first_at])[-1]
        assert path.read_bytes() == whole[:size]
    for size in range(first_at):
        path.write_bytes(whole[:size])
        with (
            pytest.raises(ConfigError, match=r"it ends at byte|it is empty|is no recording"),
            RecordingReader(str(path)),
        ):
            pass


@pytest.mark.parametrize("bit", [0x01, 0x10, 0x80])
def test_no_flipped_bit_goes_unseen(path: pathlib.Path, bit: int):
    """It is damage that names the byte where its value begins; in the length of the last one it may look like a cut."""
    whole, messages = path.read_bytes(), read_recording(path)
    with RecordingReader(str(path)) as reader:
        last_at = [recorded.end for piece in reader.pieces() for recorded in piece][-2]
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= bit
        path.write_bytes(damaged)
        said = why_refused(path)
        if not said:
            assert at >= last_at
            assert read_recording(path) == messages[:2]
        elif at < len(MAGIC):
            assert re.search("is no recording of rocketlet: at byte 0 is|is a recording of version", said)
        else:
            assert f"{path} is damaged at byte " in said


def why_refused(path: pathlib.Path) -> str:
    """Return what a reader says of a file, nothing where it reads it."""
    try:
        read_recording(path)
    except (ConfigError, DecodeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "it is empty"),
        (b"PAR1" + bytes(40), "at byte 0 is b'PAR1"),
        (b"\xb0rocketlet-dump-1" + bytes(40), "no recording but a dump: rocketlet load sends it"),
        (b"\xb5rocketlet-recording-2", "is a recording of version 2; this rocketlet reads version 1"),
    ],
)
def test_foreign_file_is_refused(tmp_path: pathlib.Path, content: bytes, text: str):
    """Before anything is read of it, with what it begins with."""
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match="file") as raised, RecordingReader(str(tmp_path / "file")):
        pass
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xc1", "it is not msgpack"),
        (b"\x01", r"there is no \[checksum, map\]"),
        (b"\x92\xce\0\0\0\0\x80", "the checksum of its 7 bytes is wrong"),
        (b"\x92\xce?\xbal\xad\x80", "it is no message: Object missing required field `topic`"),
        (b"\xdd\xff\xff\xff\xff", "it is not msgpack"),
    ],
)
def test_value_that_is_no_message_is_damage(path: pathlib.Path, value: bytes, text: str):
    """The text names the byte where it begins; what comes before was read."""
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + value)
    with RecordingReader(str(path)) as reader, pytest.raises(DecodeError, match=f"at byte {size}: {text}"):
        list(reader.pieces())


def test_file_that_grows_is_read_to_a_byte(path: pathlib.Path):
    """A recorder may still write to it."""
    with RecordingReader(str(path)) as reader:
        for _ in reader.pieces():
            pass
        end = reader.end
    path.write_bytes(path.read_bytes() * 2)
    with RecordingReader(str(path)) as reader:
        assert sum(len(piece) for piece in reader.pieces(end)) == 3


def test_large_file_takes_little_memory(tmp_path: pathlib.Path):
    """Sixteen mebibytes, of which pieces are held."""
    path = write_recording(tmp_path / "file.rec", [replace(received(0), body=bytes(64 * 1024))] * 256)
    tracemalloc.start()
    try:
        with RecordingReader(str(path)) as reader:
            assert sum(len(piece) for piece in reader.pieces()) == 256
        assert tracemalloc.get_traced_memory()[1] < 3 * MEBIBYTE
    finally:
        tracemalloc.stop()


def test_file_that_exists_is_kept(path: pathlib.Path):
    """Unless it is to be replaced; what cannot be written names why."""
    head = RecordingHead(0, ())
    with pytest.raises(ConfigError, match=r"file\.rec exists; --overwrite replaces it"):
        RecordingWriter(str(path), head)
    assert len(read_recording(path)) == 3
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        RecordingWriter(str(path.parent / "no" / "x"), head)
    RecordingWriter(str(path), head, overwrites=True).close()
    assert read_recording(path) == []


def test_full_disk_is_named():
    """What was recorded before is in the file."""
    with pytest.raises(StoreError, match="/dev/full cannot be written: No space left on device"):
        RecordingWriter("/dev/full", RecordingHead(0, ()), overwrites=True)
