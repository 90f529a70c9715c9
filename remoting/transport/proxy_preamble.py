r"""The preamble by which a load balancer tells whose connection it passes on (PROXY protocol, versions 1 and 2).

    version 1    PROXY TCP4 192.0.2.1 198.51.100.7 51234 10911\r\n    (TCP6 likewise; UNKNOWN, and nothing that counts)

    version 2    12  signature
                  1  version 2 and command: 0 the balancer itself, 1 another's
                  1  family: 0x11 IPv4, 0x21 IPv6, over TCP; others count as the balancer itself
                  2  length of what follows
                  n  source address, destination address, source port, destination port, and what else there may be

Nobody but balancers named by ``proxyProtocolFrom`` is believed: a client could claim any address. Specification:
haproxy.org, ``proxy-protocol.txt``. Upstream: ``HAProxyMessageDecoder``, which believes everybody.
"""

import ipaddress
import struct
from typing import Final, NamedTuple

from ...common.errors import FrameError
from ...common.ids import Address

_NAME: Final = b"PROXY "
_LONGEST_LINE: Final = 107
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD: Final = struct.Struct(">12sBBH")
_TCP4, _TCP6 = 0x11, 0x21
_LONGEST: Final = 1024
_OF_ANOTHER: Final = 0x21


class Preamble(NamedTuple):
    """Who is at the other end, None for the balancer itself, and how many bytes said so."""

    source: Address | None
    size: int


def parse_preamble(data: bytes) -> Preamble | None:
    """Return what the first bytes of a connection say of its other end, size 0 if they say nothing; None wants more.

    Raises:
        FrameError: what begins as a preamble is none.
    """
    if data.startswith(_SIGNATURE[: len(data)]):
        return _parse_binary(data)
    if not data.startswith(_NAME[: len(data)]):
        return Preamble(None, 0)
    end = data.find(b"\r\n", 0, _LONGEST_LINE)
    if end >= 0:
        return Preamble(_parse_line(data[:end]), end + 2)
    if len(data) >= _LONGEST_LINE:
        raise FrameError("a PROXY preamble does not end")
    return None


def _parse_line(line: bytes) -> Address | None:
    words = line.decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return None
    try:
        _, family, source, _, port, _ = words
        address = ipaddress.ip_address(source)
        if family != f"TCP{address.version}" or not 0 <= int(port) <= 65_535:
            raise ValueError(family)
    except ValueError as error:
        raise FrameError("a PROXY preamble that cannot be read") from error
    return str(address), int(port)


def _parse_binary(data: bytes) -> Preamble | None:
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    if command >> 4 != 2 or length > _LONGEST:  # the version
        raise FrameError("a PROXY preamble that cannot be read")
    size = _HEAD.size + length
    if len(data) < size:
        return None
    width = {_TCP4: 4, _TCP6: 16}.get(family, 0)
    if command != _OF_ANOTHER or not width:
        return Preamble(None, size)
    if length < 2 * width + 4:
        raise FrameError("a PROXY preamble that is too short")
    source = ipaddress.ip_address(data[_HEAD.size : _HEAD.size + width])
    (port,) = struct.unpack_from(">H", data, _HEAD.size + 2 * width)
    return Preamble((str(source), port), size)
