"""Binary headers: damage, and what they cannot hold."""

import struct

import pytest

from rocketlet.common.errors import FrameError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import decode_binary_header, encode_binary_header, fits_binary

SAMPLE = bytes.fromhex("000e 00 0000 00000000 00000000 00000001 72 00000008 0001 61 00000001 62")


def test_sample_decodes_and_is_written_again():
    """The header with remark ``r`` and ``a=b`` is what Java makes of it, and the same bytes when written."""
    command = decode_binary_header(SAMPLE)
    assert (command.code, command.language, command.remark, command.ext) == (14, "JAVA", "r", {"a": "b"})
    assert encode_binary_header(command) == SAMPLE


@pytest.mark.parametrize("size", range(len(SAMPLE)))
def test_cut_header_is_an_error(size: int):
    """A header cut at any length is refused."""
    with pytest.raises(FrameError):
        decode_binary_header(SAMPLE[:size])


@pytest.mark.parametrize("position", [13, 18, 25])
@pytest.mark.parametrize("length", [-1, 1000, 2**31 - 1])
def test_length_that_runs_past_the_end_is_an_error(position: int, length: int):
    """A length of remark, table or value that is negative or too large is refused."""
    damaged = bytearray(SAMPLE)
    struct.pack_into(">i", damaged, position, length)
    with pytest.raises(FrameError):
        decode_binary_header(bytes(damaged))


def test_value_that_runs_past_the_table_is_an_error():
    """Also into bytes that the header still has, and backwards into what would be another field."""
    shorter = bytearray(SAMPLE)
    struct.pack_into(">i", shorter, 18, 7)
    backwards = SAMPLE[:18] + struct.pack(">i", 7 + 65_534 + 4) + struct.pack(">h1si", 1, b"a", -2) + bytes(65_538)
    for damaged in (bytes(shorter), backwards):
        with pytest.raises(FrameError, match="a field of the binary header is"):
            decode_binary_header(damaged)


@pytest.mark.parametrize("position", range(3))
def test_empty_field_is_none(position: int):
    """A value, or a name with its value, of length 0 is left out wherever it stands; those beside it stay."""
    fields = [struct.pack(">h1si1s", 1, name, 1, b"v") for name in (b"a", b"b")]
    for empty in (struct.pack(">h1si", 1, b"e", 0), struct.pack(">hi", 0, 0)):
        table = b"".join([*fields[:position], empty, *fields[position:]])
        header = SAMPLE[:13] + struct.pack(">ii", 0, len(table)) + table
        command = decode_binary_header(header)
        assert (command.remark, command.ext) == (None, {"a": "v", "b": "v"})


def test_text_that_is_not_utf8_is_an_error():
    """A remark, name or value that is not UTF-8 is refused."""
    for position in (17, 24, 29):
        damaged = bytearray(SAMPLE)
        damaged[position] = 0xFF
        with pytest.raises(FrameError, match="is broken"):
            decode_binary_header(bytes(damaged))


@pytest.mark.parametrize("size", [1, 255, 256, 32_767])
def test_names_and_values_of_any_length_come_through(size: int):
    """A name has two bytes for its length, a value four: what is written is read again, as are those beside it."""
    fields = {"n" * size: "v", "a": "v" * size, "b": "v" * 70_000}
    command = decode_binary_header(encode_binary_header(Command.request(14, fields)))
    assert command.ext == fields


@pytest.mark.parametrize(
    ("ordinal", "name"), [(0, "JAVA"), (12, "RUST"), (13, "NODE_JS"), (14, "OTHER"), (127, "OTHER"), (255, "OTHER")]
)
def test_unknown_language_is_other(ordinal: int, name: str):
    """A language ordinal that nobody knows does not end the connection."""
    assert decode_binary_header(SAMPLE[:2] + bytes([ordinal]) + SAMPLE[3:]).language == name


def test_only_short_codes_fit():
    """Code and version have two bytes."""
    for code, version in ((32_767, 479), (-32_767, 479), (1, 32_767), (1, -32_767)):
        assert fits_binary(Command(code=code, version=version))
    for code, version in ((32_768, 479), (-32_769, 479), (200_050, 479), (1, 32_768), (1, -32_769)):
        assert not fits_binary(Command(code=code, version=version))
