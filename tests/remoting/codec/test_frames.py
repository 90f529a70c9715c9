"""The frame parser and writer against recorded traffic and against damage."""

import json
import pathlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import FrameError, RocketletError
from rocketlet.remoting.codec import frames as frames_module
from rocketlet.remoting.codec.command import JSON, ROCKETMQ, Command
from rocketlet.remoting.codec.frames import MAX_FRAME_BYTES, PREFIX, FrameParser, encode_command

FRAMES = pathlib.Path(__file__).parent.parent.parent / "vectors" / "frames"
SCENARIOS = sorted(path.name.removesuffix(".jsonl.gz") for path in FRAMES.glob("*.jsonl.gz"))
ReadFrames = Callable[[str], list[dict[str, Any]]]

ROUTE_QUESTION = bytes.fromhex("0000007f0000007b") + (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":9,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
SHORT_ANSWER = PREFIX.pack(26, 17) + b'{"code":0,"a":[]}' + b"bytes"
BINARY_ROUTE_QUESTION = bytes.fromhex(
    "00000025 01000021 0069 00 01df 00000009 00000000 00000000 0000000c 0005 746f706963 00000001 54"
)


def _seen(command: Command) -> dict[str, Any]:
    fields = {name: getattr(command, name) for name in ("code", "opaque", "flag", "version")}
    return {**fields, "serialize": ("JSON", "ROCKETMQ")[command.serialize], "bodyLength": len(command.body)}


def _all_fields(command: Command) -> tuple[object, ...]:
    head = (command.code, command.flag, command.language, command.opaque, command.remark, command.version)
    return (*head, command.serialize, command.ext, command.body)


def _java_header(frame: bytes) -> dict[str, Any]:
    size = int.from_bytes(frame[5:8], "big")
    return json.loads(frame[8 : 8 + size])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_frames_decode_whole(scenario: str, read_frames: ReadFrames):
    """Every frame between official clients and servers decodes to what was recorded of it."""
    for frame in read_frames(scenario):
        parser = FrameParser()
        [command] = parser.feed(bytes.fromhex(frame["hex"]))
        assert _seen(command) == {name: frame[name] for name in _seen(command)}
        assert parser.pending_bytes == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_frames_decode_in_one_read(scenario: str, read_frames: ReadFrames):
    """All frames of a recording come out of a single read, in order, and equal to those read one by one."""
    frames = [bytes.fromhex(frame["hex"]) for frame in read_frames(scenario)]
    commands = FrameParser().feed(b"".join(frames))
    singles = [command for frame in frames for command in FrameParser().feed(frame)]
    assert [_all_fields(command) for command in commands] == [_all_fields(command) for command in singles]


@pytest.mark.parametrize("scenario", ["errors-5.4.0", "producer-5.4.0-binaryboth", "route-versions-5.4.0"])
def test_recorded_frames_decode_byte_by_byte(scenario: str, read_frames: ReadFrames):
    """A frame is delivered with its last byte and not before, however it was cut."""
    for frame in read_frames(scenario):
        data = bytes.fromhex(frame["hex"])
        parser = FrameParser()
        for position in range(len(data) - 1):
            assert parser.feed(data[position : position + 1]) == []
        [command] = parser.feed(data[-1:])
        assert _seen(command) == {name: frame[name] for name in _seen(command)}


@pytest.mark.parametrize("cut", range(len(ROUTE_QUESTION) + len(BINARY_ROUTE_QUESTION) + 1))
def test_two_frames_cut_anywhere(cut: int):
    """Two frames that come in two reads are the same wherever the cut lies."""
    data = ROUTE_QUESTION + BINARY_ROUTE_QUESTION
    parser = FrameParser()
    commands = parser.feed(data[:cut]) + parser.feed(data[cut:])
    assert [command.serialize for command in commands] == [JSON, ROCKETMQ]
    assert [command.ext for command in commands] == [{"topic": "T"}, {"topic": "T"}]


@given(sizes=st.lists(st.integers(1, 200), min_size=1, max_size=40))
def test_stream_of_frames_in_reads_of_any_size(sizes: list[int]):
    """A stream of frames with bodies gives the same commands for every way of cutting it into reads."""
    frames = [encode_command(Command.request(310, {"a": "x" * size}, b"b" * size)) for size in (0, 3, 100, 7)] * 3
    data = b"".join(frames)
    parser = FrameParser()
    commands: list[Command] = []
    position = 0
    while position < len(data):
        for size in sizes:
            commands += parser.feed(data[position : position + size])
            position += size
    assert [len(command.body) for command in commands] == [0, 3, 100, 7] * 3
    assert parser.pending_bytes == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_frames_are_written_as_java_writes_them(scenario: str, read_frames: ReadFrames):
    """Writing a decoded frame gives Java's bytes, but for answers whose empty fields Java leaves out at times."""
    for frame in read_frames(scenario):
        data = bytes.fromhex(frame["hex"])
        [command] = FrameParser().feed(data)
        written = encode_command(command)
        if frame["serialize"] == "JSON" and command.is_response and not command.ext:
            expected: dict[str, Any] = _java_header(data) | {"extFields": {}}
            assert _java_header(written) == expected
            assert written.endswith(command.body)
        elif not (frame["serialize"] == "JSON" and _java_header(data).get("extFields") == {}):
            assert written == data


def test_prefix_is_two_ints():
    """The prefix is eight bytes: length and header word."""
    assert PREFIX.size == 8


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "limit is 16777216"),
        (b"GET ", "limit is 16777216"),
        (bytes.fromhex("01000000"), "frame is 16777220 bytes, limit is 16777216"),
        (bytes.fromhex("ffffffff00000000"), "frame is 3 bytes"),
        (bytes.fromhex("00000000"), "frame is 4 bytes"),
        (bytes.fromhex("0000000300000000"), "frame is 7 bytes"),
        (bytes.fromhex("0000000400000001"), "header is 1 bytes, the frame holds 0"),
        (bytes.fromhex("0000000500ffffff") + b"x", "header is 16777215 bytes"),
        (bytes.fromhex("0000000600000003") + b"{}" + ROUTE_QUESTION, "header is 3 bytes, the frame holds 2"),
        (bytes.fromhex("0000000601000064") + b"{}" + ROUTE_QUESTION, "header is 100 bytes, the frame holds 2"),
        (bytes.fromhex("0000000602000002") + b"{}", "serialise type 2 is unknown"),
        (bytes.fromhex("00000006ff000002") + b"{}", "serialise type -1 is unknown"),
        (bytes.fromhex("0000000400000000"), "the header is no JSON"),
        (bytes.fromhex("0000000401000000"), "binary header of 0 bytes is broken"),
    ],
)
def test_bad_frame_is_an_error(data: bytes, words: str):
    """A frame that Java's decoder would close the connection for is a FrameError that says why."""
    with pytest.raises(FrameError, match=words):
        FrameParser().feed(data)


@pytest.mark.parametrize("size", range(4, 8))
def test_bad_length_does_not_wait_for_the_header_word(size: int):
    """An impossible length is refused as soon as its four bytes are there, even byte by byte."""
    data = b"\x7f\xff\xff\xff\x00\x00\x00"[:size]
    parser = FrameParser()
    assert parser.feed(data[:1]) == parser.feed(data[1:3]) == []
    with pytest.raises(FrameError):
        parser.feed(data[3:])


def test_frames_before_a_bad_one_are_delivered():
    """What came whole before a bad frame is delivered; the parser then stays refused."""
    parser = FrameParser()
    [command] = parser.feed(ROUTE_QUESTION + b"rubbish!")
    assert command.code == 105
    assert isinstance(parser.failure, FrameError)
    with pytest.raises(FrameError):
        parser.feed(ROUTE_QUESTION)


def test_frame_of_the_largest_size_passes():
    """A frame of exactly the limit is read, one byte more is refused."""
    limit = 4096
    body = bytes(limit - len(ROUTE_QUESTION))
    frame = PREFIX.pack(limit - 4, 0x7B) + ROUTE_QUESTION[8:] + body
    for cut in (0, 3, 4, 100, limit - 1):
        parser = FrameParser(limit)
        commands = parser.feed(frame[:cut]) + parser.feed(frame[cut:])
        assert [len(command.body) for command in commands] == [len(body)]
        parser = FrameParser(limit - 1)
        with pytest.raises(FrameError, match="frame is 4096 bytes, limit is 4095"):
            _ = parser.feed(frame[:cut]) + parser.feed(frame[cut:])
    assert MAX_FRAME_BYTES == 16 * 1024 * 1024


def test_pending_bytes_never_exceed_the_frame():
    """A large frame that comes in pieces is held once, and nothing of it is held after it was delivered."""
    frame = encode_command(Command.request(310, {}, bytes(1_000_000)))
    parser = FrameParser()
    held: list[int] = []
    for position in range(0, len(frame), 65_536):
        commands = parser.feed(frame[position : position + 65_536])
        held.append(parser.pending_bytes)
        assert bool(commands) == (position + 65_536 >= len(frame))
    assert max(held) < len(frame)
    assert held[-1] == 0


def test_code_above_a_short_travels_as_json():
    """A binary command whose code or version does not fit into two bytes is written as JSON."""
    for command in (Command.request(200_050, {"a": "b"}), Command(code=1, version=40_000)):
        command.serialize = ROCKETMQ
        assert encode_command(command)[4] == JSON


def test_header_above_its_limit_cannot_be_written():
    """A header of 16 MiB has no place in the header word."""
    with pytest.raises(FrameError, match="limit is 16777215"):
        encode_command(Command.response(0, "x" * (1 << 24)))


_TEXTS = st.text(max_size=30)
_COMMANDS = st.builds(
    Command,
    code=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    language=st.sampled_from(["JAVA", "GO", "PYTHON"]),
    opaque=st.integers(-(2**31), 2**31 - 1),
    remark=st.none() | _TEXTS,
    version=st.integers(-(2**31), 2**31 - 1),
    body=st.binary(max_size=50),
    serialize=st.sampled_from([JSON, ROCKETMQ]),
    ext_table=st.dictionaries(_TEXTS, _TEXTS, max_size=5),
)


@given(command=_COMMANDS)
def test_command_survives_the_wire(command: Command):
    """What is written is read back; a binary header turns empty texts into none, as Java's does."""
    data = encode_command(command)
    [read] = FrameParser().feed(data)
    if data[4] == ROCKETMQ:
        command.remark = command.remark or None
        command.ext_table = {name: value for name, value in command.ext.items() if value}
    command.serialize = data[4]
    assert _all_fields(read) == _all_fields(command)


@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_random_bytes_raise_nothing_else(data: bytes, cut: int):
    """Whatever bytes come, the parser raises FrameError or nothing."""
    _feed_carelessly(data, cut)


@given(
    frame=st.sampled_from([ROUTE_QUESTION, BINARY_ROUTE_QUESTION]),
    damage=st.lists(st.tuples(st.integers(0, 128), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 130),
)
def test_damaged_frames_raise_nothing_else(frame: bytes, damage: list[tuple[int, int]], cut: int):
    """A frame with some bytes changed is read, waited for or refused, and its fields are too."""
    damaged = bytearray(frame)
    for position, value in damage:
        damaged[position % len(damaged)] = value
    _feed_carelessly(bytes(damaged), cut)


@given(
    frames=st.lists(st.sampled_from([ROUTE_QUESTION, BINARY_ROUTE_QUESTION, SHORT_ANSWER]), max_size=4),
    damage=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 400),
)
def test_frames_are_cut_alike_without_a_compiler(frames: list[bytes], damage: list[tuple[int, int]], cut: int):
    """Commands, what waits for its rest, and the error are those of the parser in Python."""
    data = bytearray(b"".join(frames))
    for position, value in damage:
        data[position : position + 1] = bytes([value])  # behind the end it is one byte more
    found = _feed_all(bytes(data), cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames_module, "header_codecs", None)
        assert _feed_all(bytes(data), cut) == found


@given(header=st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=4))
def test_any_json_as_a_header_raises_nothing_else(header: object):
    """JSON of any other shape in the header's place, or in a field's place, is read or refused."""
    for value in (header, {"code": header}, {"code": 1, "extFields": header}, {"code": 1, "extFields": {"a": header}}):
        text = json.dumps(value).encode()
        _feed_carelessly(PREFIX.pack(4 + len(text), len(text)) + text, 0)


def _feed_all(data: bytes, cut: int) -> tuple[object, ...]:
    parser, commands = FrameParser(), list[Command]()
    for part in (data[:cut], data[cut:]):
        with suppress(FrameError):
            commands += parser.feed(part)
    seen = [(command.code, command.opaque, command.serialize, command.body) for command in commands]
    return seen, parser.pending_bytes, parser.expected_bytes, str(parser.failure)


def _feed_carelessly(data: bytes, cut: int) -> None:
    parser = FrameParser()
    with suppress(RocketletError):
        for command in parser.feed(data[:cut]) + parser.feed(data[cut:]):
            _all_fields(command)
            encode_command(command)
