"""Brokers that ask each other: requests of a broker are signed as its settings say."""

import pathlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from broker_pairs import Member, pass_ms, run_member, until_copied, until_equal, until_so
from guarded import ADMIN, GUARDED, INNER, SignedCaller
from raw_calls import open_caller

from rocketlet.common.clock import Clock
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock


@asynccontextmanager
async def run_guarded(
    root: pathlib.Path, clock: Clock, namesrv: str, broker_id: int = 0, **settings: str
) -> AsyncGenerator[Member]:
    """Run a broker that asks who its clients are, and ask it as who may do everything."""
    async with run_member(root, clock, namesrv, broker_id, **{**GUARDED, **settings}) as member:
        yield Member(member.broker, SignedCaller(member.caller, *ADMIN))


@pytest.fixture
async def master(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> AsyncGenerator[Member]:
    """Run a master with messages and an offset."""
    async with run_guarded(tmp_path / "master", clock, nameserver.address) as member:
        await member.put_topic("T", 1)
        await member.put_group("g")
        await member.caller.send("T")
        await member.commit("g", "T", 0, 1)
        yield member


@pytest.mark.feature("A22")
async def test_slave_with_credentials_copies_a_protected_master(
    tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer, master: Member
) -> None:
    """Topics, groups, offsets and the log arrive; the slave asks who its own clients are as well."""
    async with run_guarded(tmp_path / "slave", clock, nameserver.address, 1) as slave:
        await until_equal(master, slave)
        await until_copied(master, slave, clock)
        assert slave.broker.store.max_offset("T", 0) == 1
        stranger = SignedCaller(slave.caller, INNER[0], "wrong")
        assert (await stranger.ask(Code.GET_ALL_TOPIC_CONFIG)).remark == "check signature failed."


@pytest.mark.feature("A22")
async def test_slave_without_credentials_is_refused_and_goes_on(
    tmp_path: pathlib.Path,
    clock: ManualClock,
    nameserver: NameServer,
    master: Member,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both say in their logs what was refused to whom; the slave answers its clients."""
    none = {"innerClientAuthenticationCredentials": ""}
    async with run_guarded(tmp_path / "slave", clock, nameserver.address, 1, **none) as slave:

        async def is_refused() -> bool:
            await pass_ms(clock, 3_000, master, slave)
            by_master = "refusing GET_ALL_TOPIC_CONFIG (21) from 127.0.0.1:"
            return by_master in caplog.text and "answered 16: username cannot be null." in caplog.text

        await until_so(is_refused)
        assert (await slave.caller.ask(Code.GET_BROKER_RUNTIME_INFO)).code == 0
        assert await slave.table(Code.GET_ALL_TOPIC_CONFIG) != await master.table(Code.GET_ALL_TOPIC_CONFIG)


async def test_registration_is_signed(tmp_path: pathlib.Path, clock: ManualClock, nameserver: NameServer) -> None:
    """Name servers do not look at it: a protected broker is found as any other."""
    async with run_guarded(tmp_path / "alone", clock, nameserver.address) as member:
        await member.put_topic("Found", 1)
        async with open_caller(nameserver.address) as caller:
            route = await caller.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "Found"})
        assert member.broker.address.encode() in route.body
