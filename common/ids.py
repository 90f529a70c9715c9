"""The texts that name a host or a message: addresses, message ids, and the handle that recalls a message.

An address is ``host:port``, an IPv6 host in brackets. The bytes of a host are its IP address (4 or 16) and port (4).
Ids (Java's ``MessageDecoder``, ``MessageClientIDSetter``) hold such bytes.
Ids are upper-case hex, 32 characters (IPv4) or 56 (IPv6), of

    offset id   the broker's host + log offset (8)
    unique id   address + process id (2) + discriminator (4) + ms since the month began in local time (4) + counter (2)

A handle (``RecallMessageHandle``; remoting.md §4.3) takes a timer message back:

    v1 <topic> <broker name> <time> <unique key>     in the base64 of URLs, with padding

Rules of reading, which are Java's: padding may be left out, words behind the fifth are passed over, a broken character
becomes U+FFFD. The time is a word here; whether it is a number is judged by who needs it.
"""

import base64
import binascii
import ipaddress
import random
import re
import struct
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from .errors import ConfigError, DecodeError
from .properties import codecs

_VERSION: Final = "v1"
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+(={1,2})?")

_ID_LENGTHS = (32, 56)
_MAX_PORT = 65_535
Address = tuple[str, int]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
ANY_HOSTS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 # compared with, not bound
"""What a server listens at that listens at every address."""


def format_address(host: str, port: int) -> str:
    """Return ``host:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(text: str) -> bool:
    """Tell whether the text is ``host:port``."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT


def parse_networks(text: str, key: str) -> tuple[Network, ...]:
    """Return the addresses and networks of a setting, between commas; none for an empty one.

    Raises:
        ConfigError: one is none, or there is nothing but commas.
    """
    try:
        networks = tuple(ipaddress.ip_network(part) for each in text.split(",") if (part := each.strip()))
    except ValueError as error:
        raise ConfigError(f"{key}: {error}", key=key) from error
    if text.strip() and not networks:
        raise ConfigError(f"{key} is {text!r}, which names no address", key=key)
    return networks


def is_among(host: str, networks: Sequence[Network]) -> bool:
    """Tell whether an address belongs to networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


@lru_cache(maxsize=4096)
def encode_host(address: str, port: int) -> bytes:
    """Return the 8 bytes (IPv4) or 20 bytes (IPv6) of a host.

    Brackets and the scope of an IPv6 address are dropped; an IPv4 address in IPv6 form is IPv4, as it is in Java.

    Raises:
        ValueError: The text is not an IP address or the port is not one.
    """
    if not 0 <= port <= 0xFFFF:
        raise ValueError(f"port is {port}, limit is 65535")
    found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    return found.packed + port.to_bytes(4, "big")


@lru_cache(maxsize=4096)
def decode_host(host: bytes) -> tuple[str, int]:
    """Return (address, port) of 8 or 20 host bytes.

    Raises:
        DecodeError: There are more or fewer bytes.
    """
    if len(host) not in (8, 20):
        raise DecodeError(f"host is {len(host)} bytes, not 8 or 20")
    return str(ipaddress.ip_address(host[:-4])), int.from_bytes(host[-4:], "big", signed=True)


def format_offset_id(host: bytes, log_offset: int) -> str:
    """Return the id that names a record by broker and position."""
    return f"{host.hex()}{log_offset & 0xFFFFFFFFFFFFFFFF:016x}".upper()


def format_offset_ids(host_text: str, log_offsets: Sequence[int]) -> str:
    """Return the offset ids of records at one host, with commas between them; each begins with the text of the host."""
    if codecs is not None:
        return codecs.format_offset_ids(host_text, log_offsets)
    return ",".join([f"{host_text}%016X"] * len(log_offsets)) % tuple(log_offsets)


def parse_offset_id(text: str) -> tuple[bytes, int]:
    """Return (host bytes, log offset) of an offset id, upper or lower case.

    Raises:
        DecodeError: The text has another length or holds something else than hex digits.
    """
    data = _unhex(text)
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)


def unique_id_created_at(text: str, now_ms: int) -> int:
    """Return about when a unique id was made: the latest month in which it is not in the future.

    Raises:
        DecodeError: The text is not a unique id.
    """
    elapsed_ms = struct.unpack_from(">I", _unhex(text), len(text) // 2 - 6)[0]
    start_ms, _ = _month_around(now_ms)
    if start_ms + elapsed_ms > now_ms:
        start_ms, _ = _month_around(start_ms - 1)
    return start_ms + elapsed_ms


class UniqueIds:
    """Makes the unique ids of one process (``MessageClientIDSetter``).

    ``address`` is the own IP address, 4 or 16 bytes. The discriminator, random unless given, keeps two makers with
    one address and process id apart.
    """

    def __init__(
        self, address: bytes, pid: int, now_ms: Callable[[], int], *, discriminator: int | None = None
    ) -> None:
        if len(address) not in (4, 16):
            raise ValueError(f"address is {len(address)} bytes, not 4 or 16")
        if discriminator is None:
            discriminator = random.getrandbits(32)
        self._prefix = f"{address.hex()}{pid & 0xFFFF:04x}{discriminator & 0xFFFFFFFF:08x}".upper()
        self._now_ms = now_ms
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0
        self._stem = ""
        self._stem_ms: int = -1

    def __repr__(self) -> str:
        return f"<UniqueIds {self._prefix} made={self._counter}>"

    def next_id(self) -> str:
        """Return a fresh id of 32 characters (56 for an IPv6 address)."""
        now_ms = self._now_ms()
        if now_ms != self._stem_ms:  # what the ids of one millisecond have in common
            if now_ms >= self._month_end_ms:
                self._month_start_ms, self._month_end_ms = _month_around(now_ms)
            # A clock that stepped back over the start of the month must not make the number negative.
            self._stem = f"{self._prefix}{max(now_ms - self._month_start_ms, 0):08X}"
            self._stem_ms = now_ms
        counter = self._counter
        self._counter = counter + 1
        return f"{self._stem}{counter & 0xFFFF:04X}"

    def next_ids(self, count: int) -> list[str]:
        """Return several fresh ids."""
        first = self.next_id()
        counter, stem = self._counter, self._stem
        self._counter = counter + count - 1
        return [first, *[f"{stem}{number & 0xFFFF:04X}" for number in range(counter, self._counter)]]


def _unhex(text: str) -> bytes:
    if len(text) not in _ID_LENGTHS:
        raise DecodeError(f"id {text!r} has {len(text)} characters, not 32 or 56")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise DecodeError(f"id {text!r} is not hex") from error
    if 2 * len(data) != len(text):  # fromhex skips blanks
        raise DecodeError(f"id {text!r} is not hex")
    return data


def _month_around(at_ms: int) -> tuple[int, int]:
    local = time.localtime(at_ms / 1000)
    starts = (time.mktime((local.tm_year, local.tm_mon + step, 1, 0, 0, 0, 0, 0, -1)) for step in (0, 1))
    first, second = (int(start) * 1000 for start in starts)
    return first, second


class RecallHandle(NamedTuple):
    """Which message is meant: the broker that keeps it, when it is due, and its unique key."""

    topic: str
    broker_name: str
    due_at: str
    unique_key: str


def format_recall_handle(handle: RecallHandle) -> str:
    """Return the text that a producer gets."""
    return base64.urlsafe_b64encode(" ".join((_VERSION, *handle)).encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    """Return what a producer has sent back.

    Raises:
        DecodeError: It is no handle; the text is Java's.
    """
    padded = text if text.endswith("=") else text + "=" * (-len(text) % 4)
    try:
        if not _ALPHABET.fullmatch(text):
            raise DecodeError("recall handle is invalid")
        words = base64.urlsafe_b64decode(padded).decode("utf-8", "replace").rstrip(" ").split(" ")
    except binascii.Error as error:
        raise DecodeError("recall handle is invalid") from error
    if words[0] != _VERSION or len(words) < 5:
        raise DecodeError("recall handle is invalid")
    return RecallHandle(*words[1:5])
