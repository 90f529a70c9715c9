"""Which process listens at a port."""

import os
import pathlib
import socket
import sys

import pytest

from rocketlet.remoting.transport.port_holder import find_holder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="platform: only Linux tells who has a socket")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])  # noqa: S104 # the case: at all addresses
def test_holder_is_named(host: str) -> None:
    """By its number and name, at whichever address it listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("platform: no such address here")
    with listening:
        holder = find_holder(listening.getsockname()[1])
    assert holder is not None
    assert holder == (os.getpid(), pathlib.Path("/proc/self/comm").read_text().strip())
    assert str(holder) == f"process {holder.pid} ({holder.name})"


def test_port_that_nobody_listens_at() -> None:
    """A socket that is bound and does not listen is no holder, nor is a connected one."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert find_holder(bound.getsockname()[1]) is None
