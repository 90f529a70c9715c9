"""Addresses: pairs of host and port, and as text ``host:port``, an IPv6 host in brackets."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import NamedTuple, cast

from ...common.clock import Clock
from ...common.errors import ConfigError
from ...common.ids import ANY_HOSTS, Address, format_address

_LOCAL_HOST = "127.0.0.1"
_RESOLVE_LIMIT_MS = 10_000
_SOMEWHERE = ("192.0.2.1", 9)  # reserved for documentation, so nobody is there; nothing is sent


class Advertised(NamedTuple):
    """Where settings say that clients find a server, if they do (``--advertise``), and where it listens."""

    host: str
    port: int
    bound: Address

    @property
    def told(self) -> Address:
        """The address that clients shall use."""
        return self.host or reachable_host(self.bound[0]), self.port or self.bound[1]


def address_of(name: object) -> Address:
    """Return the address that a socket's name holds; none for a socket that is not connected any more."""
    if isinstance(name, tuple) and len(cast("tuple[object, ...]", name)) >= 2:
        host, port = cast("tuple[str, int]", name)[:2]
        return host, port
    return "", 0


def reachable_host(bound_host: str) -> str:
    """Return a host under which a server that is bound so can be reached.

    A server that listens at every address is reached at the one that this machine would send from, without a network
    at the loopback address.
    """
    if bound_host not in ANY_HOSTS:
        return bound_host
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_SOMEWHERE)
            return str(probe.getsockname()[0])
    except OSError:
        return _LOCAL_HOST


def local_host(bound_host: str) -> str:
    """Return a host under which this machine itself reaches a server that is bound so."""
    if bound_host not in ANY_HOSTS:
        return bound_host
    return "::1" if bound_host == "::" else _LOCAL_HOST


def is_own_address(host: str) -> bool:
    """Tell whether an IP address is one of this machine's."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def check_advertised(advertised_ip: str, bound_host: str) -> None:
    """Refuse to tell clients an address of this machine at which a server that is bound so does not listen.

    Raises:
        ConfigError: nobody would listen there.
    """
    if not _is_served(advertised_ip, bound_host) and is_own_address(advertised_ip):
        raise ConfigError(
            f"clients would be told {advertised_ip} (--advertise, brokerIP1), where nobody listens: --host "
            f"(bindAddress) is {bound_host}; leave it out to listen at all addresses",
            key="bindAddress",
        )


def _is_served(ip: str, bound_host: str) -> bool:
    """Tell whether a server that is bound so listens at an address, if that is one of this machine's."""
    if bound_host in ANY_HOSTS:
        return not bound_host or (":" in ip) == (bound_host == "::")
    return ip == bound_host or not is_ip_address(bound_host)  # a name may stand for it


async def resolve_host(host: str, clock: Clock) -> list[str]:
    """Return the IP addresses of a name, or of itself.

    Raises:
        OSError: it has none, or nobody has said so in time.
    """
    if is_ip_address(host):
        return [host]
    try:
        async with clock.timeout(_RESOLVE_LIMIT_MS):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise OSError(f"no answer within {_RESOLVE_LIMIT_MS} ms") from error
    except UnicodeError as error:
        raise OSError(str(error)) from error
    return [str(address[4][0]) for address in found]


async def describe_forwarding(servers: Sequence[Advertised], clock: Clock) -> str | None:
    """Return what must be forwarded so that clients reach servers of one host where they are told; None if nothing.

    Only names are looked up; nothing is sent to the addresses.
    """
    host = servers[0].host
    try:
        own = [ip for ip in await resolve_host(host, clock) if is_own_address(ip)]
        fault = "but this process does not listen there" if own else f"but {host} is no address of this machine"
    except OSError as error:
        own, fault = [], f"a name that does not resolve here ({error})"
    unserved = [
        server
        for server in servers
        if server.told[1] != server.bound[1] or not any(_is_served(ip, server.bound[0]) for ip in own)
    ]
    if not unserved:
        return None
    told = {format_address(*server.told): format_address(*server.bound) for server in unserved}
    forwarded = " and ".join(f"{address} to {bound}" for address, bound in told.items())
    return (
        f"clients are told {' and '.join(told)}, {fault}: they get through only if something forwards {forwarded}, "
        "where this process listens"
    )


def host_to_listen_at(advertised_host: str, default: str) -> str:
    """Return where a server listens that was told what clients shall use, and not where to listen.

    That address if it never leaves this machine, every address otherwise: only so do clients reach it, as Java's do.
    """
    if not advertised_host or advertised_host == "localhost":
        return default
    if is_loopback(advertised_host):
        return advertised_host
    return "::" if ":" in advertised_host else "0.0.0.0"  # noqa: S104 # that is what was asked for


def is_ip_address(host: str) -> bool:
    """Tell whether the host is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Tell whether the address never leaves this machine; a name does not tell."""
    return is_ip_address(host) and ipaddress.ip_address(host).is_loopback
