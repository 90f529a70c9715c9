"""The pytest plugin of rocketlet.

    rocketmq_broker             a name server and a broker for the whole session, on free ports, with a temporary store
    isolated_rocketmq_broker    the same for one test, which nothing has happened to
    rocketmq_settings           the brokers' settings, Java's keys; override it in your conftest.py (scope "session")
    rocketmq_snapshot           the file that the brokers start from (``RocketmqBroker.snapshot``); override it likewise

A test that uses ``rocketmq_broker`` must have closed its producers and consumers when it ends: those that it started
and that are still connected are an error that names them and shows where they were opened. Those of fixtures with a
wider scope may stay. ``rocketmq_leak_check = false`` in the ini file turns that off.

What a test has injected, stopped or added is over when it ends (``RocketmqBroker.end_test``). A fault that nothing has
met fails it, and so does an error inside the broker.

pytest imports this module in every run, so nothing heavy is imported before a test asks for a fixture.
"""

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from ..remoting.transport.connection import Connection
    from .broker_thread import RocketmqBroker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the ini option."""
    parser.addini("rocketmq_leak_check", "fail tests that leave producers or consumers connected", "bool", default=True)


@pytest.fixture(scope="session")
def rocketmq_settings() -> Mapping[str, str]:
    """Return the settings that the broker of the session is started with."""
    return {}


@pytest.fixture(scope="session")
def rocketmq_snapshot() -> str | os.PathLike[str] | None:
    """Return the snapshot that the brokers start from, None for an empty store."""
    return None


@pytest.fixture(scope="session")
def rocketmq_broker(
    rocketmq_settings: Mapping[str, str], rocketmq_snapshot: str | os.PathLike[str] | None, pytestconfig: pytest.Config
) -> Iterator["RocketmqBroker"]:
    """Run a broker for the session: ``.nameserver`` is its address, ``.topic()`` makes a topic of a test's own."""
    from .broker_thread import RocketmqBroker

    _import_index_tools(pytestconfig)
    with RocketmqBroker(rocketmq_settings, snapshot=rocketmq_snapshot) as broker, _opening_stacks(pytestconfig):
        yield broker


@pytest.fixture
def isolated_rocketmq_broker(
    rocketmq_settings: Mapping[str, str],
    rocketmq_snapshot: str | os.PathLike[str] | None,
    pytestconfig: pytest.Config,
    request: pytest.FixtureRequest,
) -> Iterator["RocketmqBroker"]:
    """Run a broker for one test: nothing has happened to it, and its time is the machine's."""
    from .broker_thread import RocketmqBroker

    _import_index_tools(pytestconfig)
    with RocketmqBroker(rocketmq_settings, snapshot=rocketmq_snapshot) as broker, _opening_stacks(request.config):
        broker.prefix = request.node.name
        yield broker
        _check_leaks(request, broker, KnownClients(frozenset(), frozenset()))


def _import_index_tools(config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("pytester"):
        # What is first imported in a test session inside this one is forgotten with that one, and numpy cannot be
        # imported a second time: the broker would need it in vain when it stops.
        importlib.import_module("rocketlet.store.index.index_build")


def _opening_stacks(config: pytest.Config) -> AbstractContextManager[None]:
    """Keep where clients are opened, if somebody will want to know."""
    if not config.getini("rocketmq_leak_check"):
        return nullcontext()
    from .leaks import opening_stacks

    return opening_stacks()


class KnownClients(NamedTuple):
    """Who was there before a test: connections, and clients of this process, which may connect when they are used."""

    connections: "frozenset[Connection]"
    client_ids: frozenset[str]


def _check_leaks(request: pytest.FixtureRequest, broker: "RocketmqBroker", known: KnownClients) -> None:
    """Fail a test that has left producers or consumers connected."""
    if request.config.getini("rocketmq_leak_check") and (left := broker.wait_for_goodbyes(*known)):
        from .leaks import describe_leaks

        pytest.fail(describe_leaks(left), pytrace=False)


@pytest.fixture(autouse=True)
def _rocketmq_leak_check(request: pytest.FixtureRequest) -> Iterator[None]:
    if "rocketmq_broker" not in request.fixturenames:
        yield
        return
    broker: RocketmqBroker = request.getfixturevalue("rocketmq_broker")
    broker.prefix = request.node.name
    broker.begin_test()
    from .leaks import opened_clients

    known = KnownClients(broker.connections(), opened_clients())
    with _opening_stacks(request.config):
        yield
    try:
        _check_leaks(request, broker, known)
    finally:
        broker.end_test()
