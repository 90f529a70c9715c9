"""Addresses as text."""

import ipaddress

import pytest

from rocketlet.remoting.addresses import format_address, is_address, is_ip_address, is_loopback, reachable_host


def test_address_is_host_and_port():
    """An IPv6 host stands in brackets, so that the port can be told from it."""
    assert format_address("10.0.0.1", 9876) == "10.0.0.1:9876"
    assert format_address("::1", 9876) == "[::1]:9876"


@pytest.mark.parametrize("text", ["10.0.0.1:9876", "host:1", "[::1]:65535"])
def test_address_names_host_and_port(text: str):
    """Names, IPv4 addresses and IPv6 addresses in brackets are addresses with a port."""
    assert is_address(text)


@pytest.mark.parametrize("text", ["", "host", ":9876", "host:", "host:0", "host:65536", "host:٣", "host:-1"])
def test_half_an_address_is_none(text: str):
    """Without a host, or without a port that exists, a text is no address."""
    assert not is_address(text)


def test_bound_host_is_reachable_as_it_is():
    """A server at one address is reached there."""
    assert reachable_host("10.0.0.1") == "10.0.0.1"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])  # noqa: S104  not bound
def test_server_at_every_address_has_one_to_tell(host: str):
    """A server that listens everywhere is reached at an address of this machine."""
    address = ipaddress.ip_address(reachable_host(host))
    assert not address.is_unspecified


@pytest.mark.parametrize(
    ("host", "is_ip", "is_local"),
    [
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("::1", True, True),
        ("10.0.0.1", True, False),
        ("localhost", False, False),
        ("", False, False),
    ],
)
def test_kind_of_host(host: str, is_ip: bool, is_local: bool):
    """Addresses are told from names, and those that never leave the machine from others."""
    assert (is_ip_address(host), is_loopback(host)) == (is_ip, is_local)
