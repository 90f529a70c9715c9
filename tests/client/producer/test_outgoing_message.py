"""Messages made ready to send."""

import sys
import zlib
from typing import Any

import pytest

from rocketlet.client.producer.outgoing_message import prepare_batch, prepare_message, split_batch
from rocketlet.client.session.settings import ProducerSettings, check_topic
from rocketlet.common.compression import CompressionKind, inflate
from rocketlet.common.errors import ConfigError
from rocketlet.common.message import Message
from rocketlet.common.properties import parse_properties
from rocketlet.common.record import decode_batch

SETTINGS = ProducerSettings()
MIB = 1024 * 1024


def test_message_gets_its_unique_key_once() -> None:
    """A key that the message brings is kept, so a message that is sent again is known."""
    fresh = prepare_message(Message("T", b"x", tags="A", keys=["k1", "k2"]), "ID-1", SETTINGS)
    again = prepare_message(Message("T", b"x", properties={"UNIQ_KEY": "OLD"}), "ID-2", SETTINGS)

    assert fresh.message_id == "ID-1"
    expected = {"UNIQ_KEY": "ID-1", "TAGS": "A", "KEYS": "k1 k2", "WAIT": "true"}
    assert parse_properties(fresh.property_text) == expected
    assert again.message_id == "OLD"


@pytest.mark.feature("K12")
@pytest.mark.parametrize(("size", "sys_flag"), [(4095, 0), (4096, 0x301)])
def test_body_is_compressed_from_4096_bytes_on(size: int, sys_flag: int) -> None:
    """Zlib at level 5 with Java's flag for it; the message itself is not touched."""
    message = Message("T", b"a" * size)
    outgoing = prepare_message(message, "ID", SETTINGS)

    assert outgoing.sys_flag == sys_flag
    assert (zlib.decompress(outgoing.body) if sys_flag else outgoing.body) == message.body
    assert not sys_flag or outgoing.body == zlib.compress(message.body, 5)


@pytest.mark.feature("K12")
@pytest.mark.parametrize("kind", CompressionKind)
def test_body_is_compressed_as_set(kind: CompressionKind) -> None:
    """Each kind has its flag, and gives the body back; a smaller body than the limit is not touched."""
    settings = ProducerSettings(compression=kind, compress_from_bytes=100)
    large = prepare_message(Message("T", b"a" * 100), "ID", settings)
    small = prepare_message(Message("T", b"a" * 99), "ID", settings)

    assert large.sys_flag == kind.sys_flag
    assert len(large.body) < 100
    assert inflate(large.body, large.sys_flag) == b"a" * 100
    assert (small.body, small.sys_flag) == (b"a" * 99, 0)


@pytest.mark.feature("K12")
def test_missing_package_is_found_before_the_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that ask for zstd where it is not installed say what to install."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"pip install 'rocketlet\[zstd\]'"):
        ProducerSettings(compression=CompressionKind.ZSTD)
    assert ProducerSettings(compression=CompressionKind.LZ4).compression is CompressionKind.LZ4


def test_body_at_the_limit_passes_and_one_more_byte_does_not() -> None:
    """4 MiB may be sent, 4 MiB + 1 are refused before anything is sent."""
    uncompressed = ProducerSettings(compress_from_bytes=8 * MIB)
    assert len(prepare_message(Message("T", b"x" * 4 * MIB), "ID", uncompressed).body) == 4 * MIB

    with pytest.raises(ValueError, match="body is 4194305 bytes, limit is 4194304"):
        prepare_message(Message("T", b"x" * (4 * MIB + 1)), "ID", uncompressed)


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (Message("T", b""), ValueError, "body is empty"),
        (Message("", b"x"), ValueError, "blank"),
        (Message("a b", b"x"), ValueError, "illegal characters"),
        (Message("t" * 128, b"x"), ValueError, "longer than"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), ValueError, "takes no messages"),
        (Message("T", b"x", properties={"a": "\x01"}), ValueError, "separate properties"),
        (Message("T", b"x", properties={"a": "b" * 32_767}), ValueError, "limit is 32767"),
        (Message("T", b"x", flag=1 << 31), ValueError, "flag is 2147483648, it must fit 32 bits"),
        (Message("T", b"x", flag=(-1 << 31) - 1), ValueError, "flag is -2147483649, it must fit 32 bits"),
        ("T", TypeError, "takes a Message"),
    ],
)
def test_message_that_nobody_can_send_is_refused(message: Any, error: type[Exception], text: str) -> None:
    """What every broker would refuse is the caller's mistake and is not sent."""
    with pytest.raises(error, match=text):
        prepare_message(message, "ID", SETTINGS)


def test_topic_that_no_server_accepts_is_refused() -> None:
    """The longest name has 127 characters."""
    check_topic("t" * 127)
    with pytest.raises(ValueError, match="max length 127"):
        check_topic("t" * 128)


@pytest.mark.feature("K13")
def test_batch_holds_each_message_with_its_own_key() -> None:
    """Bodies stay as they are, each part has its key, and the batch one more in its head."""
    messages = [Message("T", b"a" * 5000, tags="A"), Message("T", b"b", flag=7)]
    outgoing = prepare_batch(messages, ["ID-1", "ID-2", "ID-3"], SETTINGS)

    assert outgoing.is_batch
    assert outgoing.message_id == "ID-1,ID-2"
    assert parse_properties(outgoing.property_text) == {"UNIQ_KEY": "ID-3", "WAIT": "true"}
    parts = decode_batch(outgoing.body)
    assert [(part.flag, part.body) for part in parts] == [(0, b"a" * 5000), (7, b"b")]
    assert parse_properties(parts[0].property_text) == {"UNIQ_KEY": "ID-1", "TAGS": "A", "WAIT": "true"}


@pytest.mark.feature("K13")
@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "empty"),
        ([Message("T", b"x"), Message("U", b"x")], "topics T and U"),
        ([Message("T", b"x"), Message("T", b"x", waits_for_store=False)], "wait for the store"),
        ([Message("T", b"x", delay_level=3)], "delayed"),
        ([Message("T", b"x", delay_ms=3)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("T", b"x" * 3 * MIB), Message("T", b"x" * 2 * MIB)], "limit is 4194304"),
    ],
)
def test_batch_that_cannot_travel_together_is_refused(messages: list[Message], text: str) -> None:
    """One topic, one wait flag, no delays, no retry topic, 4 MiB in all."""
    with pytest.raises(ValueError, match=text):
        prepare_batch(messages, ["ID"] * (len(messages) + 1), SETTINGS)


@pytest.mark.feature("K13")
def test_splitter_cuts_at_the_limit() -> None:
    """Pieces are as large as the limit lets them be, and keep the order."""
    messages = [Message("T", bytes([65 + index]) * 100) for index in range(7)]
    size = 1 + 100 + len("WAITtrue") + 20

    pieces = list(split_batch(messages, 3 * size))

    assert [len(piece) for piece in pieces] == [3, 3, 1]
    assert [message for piece in pieces for message in piece] == messages


@pytest.mark.feature("K13")
@pytest.mark.parametrize(("spare_bytes", "pieces"), [(0, [2, 1]), (-1, [1, 1, 1])])
def test_splitter_counts_every_byte(spare_bytes: int, pieces: list[int]) -> None:
    """Topic, body, 20 bytes, and names and values of properties as they are written: with two bytes for an umlaut."""
    message = Message("Topic", b"body", properties={"färbe": "grün"})
    size = len("Topic") + len("body") + len("WAITtrue") + len("färbegrün".encode()) + 20
    found = split_batch([message] * 3, 2 * size + spare_bytes)
    assert [len(piece) for piece in found] == pieces


@pytest.mark.parametrize("flag", [-1 << 31, -1, 0, (1 << 31) - 1])
def test_flag_of_32_bits_passes(flag: int) -> None:
    """It is a number of 32 bits with a sign, all of which may be used."""
    [part] = decode_batch(prepare_batch([Message("T", b"x", flag=flag)], ["ID-1", "ID-2"], SETTINGS).body)
    assert part.flag == flag


@pytest.mark.feature("K13")
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
def test_splitter_hands_an_oversize_message_out_alone(place: int) -> None:
    """It is neither lost nor does it take others with it; sending it is what fails."""
    messages = [Message("T", b"x" * 10), Message("T", b"x" * 10)]
    messages.insert(place, Message("T", b"x" * 1000))

    pieces = list(split_batch(messages, 500))

    assert [messages[place]] in pieces
    assert [message for piece in pieces for message in piece] == messages
