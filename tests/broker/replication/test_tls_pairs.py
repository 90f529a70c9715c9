"""A slave, its master and their name server, all of which take TLS alone."""

import pathlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from broker_pairs import Member, pass_ms, run_member, until_copied, until_equal, until_so

from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.tls.certificates import (
    CA_FILE,
    CLIENT_FILE,
    CLIENT_KEY_FILE,
    SERVER_FILE,
    SERVER_KEY_FILE,
    make_test_authority,
)
from rocketlet.testing.manual_clock import ManualClock

REFUSED = "it does not speak TLS"


def make_settings(directory: pathlib.Path) -> dict[str, str]:
    """Return settings of servers that take TLS alone, trust one authority, and show each other its certificates."""
    directory.mkdir()
    for name, content in make_test_authority(["localhost", "127.0.0.1"], 1).items():
        (directory / name).write_bytes(content)
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(directory / SERVER_FILE),
        "tls.server.keyPath": str(directory / SERVER_KEY_FILE),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(directory / CA_FILE),
        "tls.client.trustCertPath": str(directory / CA_FILE),
        "tls.client.certPath": str(directory / CLIENT_FILE),
        "tls.client.keyPath": str(directory / CLIENT_KEY_FILE),
    }


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> dict[str, str]:
    """Return the settings that all have."""
    return make_settings(tmp_path / "authority")


@asynccontextmanager
async def run_master(root: pathlib.Path, clock: ManualClock, settings: dict[str, str]) -> AsyncGenerator[Member]:
    """Run a name server, and a master with a message and an offset."""
    named = NameServerConfig.from_java({"listenPort": "0", **settings})
    async with (
        NameServer(named, clock) as nameserver,
        run_member(root, clock, nameserver.address, 0, **settings) as master,
    ):
        await master.put_topic("T", 1)
        await master.put_group("g")
        await master.caller.send("T")
        await master.commit("g", "T", 0, 1)
        yield Member(master.broker, master.caller)


def namesrv_of(member: Member) -> str:
    """Return the name server of a broker."""
    return member.broker.config.nameservers


@pytest.mark.feature("A5", "H1")
async def test_slave_copies_under_tls(
    tmp_path: pathlib.Path, clock: ManualClock, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Topics, groups, offsets and the log arrive, and nobody has tried to speak in plain text."""
    async with (
        run_master(tmp_path / "master", clock, settings) as master,
        run_member(tmp_path / "slave", clock, namesrv_of(master), 1, **settings) as slave,
    ):
        await until_equal(master, slave)
        await until_copied(master, slave, clock)
        assert slave.broker.store.max_offset("T", 0) == 1
        await master.put_topic("Later", 2)
        for _ in range(30):
            await pass_ms(clock, 2_500, master, slave)
        await until_equal(master, slave)
        assert REFUSED not in caplog.text


@pytest.mark.feature("A5")
async def test_slave_that_is_to_speak_in_plain_text(
    tmp_path: pathlib.Path, clock: ManualClock, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It finds neither name server nor master, whose logs say why: neither has answered it a word."""
    plain = {"tls.server.mode": "permissive", "tls.enable": "false"}
    async with (
        run_master(tmp_path / "master", clock, settings) as master,
        run_member(
            tmp_path / "slave", clock, namesrv_of(master), 1, masterAddress=master.broker.address, **plain
        ) as slave,
    ):

        async def is_refused() -> bool:
            await pass_ms(clock, 3_000, slave)
            return caplog.text.count(REFUSED) > 1

        await until_so(is_refused)
        assert "T" not in (await slave.tables())[0]["topicConfigTable"]


@pytest.mark.feature("A4", "A5")
async def test_slave_of_another_authority(
    tmp_path: pathlib.Path, clock: ManualClock, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate that the master's authority has not signed opens nothing, and the slave trusts no such master."""
    other = make_settings(tmp_path / "other")
    async with (
        run_master(tmp_path / "master", clock, settings) as master,
        run_member(
            tmp_path / "slave", clock, namesrv_of(master), 1, masterAddress=master.broker.address, **other
        ) as slave,
    ):

        async def is_refused() -> bool:
            await pass_ms(clock, 3_000, slave)
            return "CERTIFICATE_VERIFY_FAILED" in caplog.text

        await until_so(is_refused)
        assert "T" not in (await slave.tables())[0]["topicConfigTable"]
