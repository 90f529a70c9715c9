"""A hundred brokers opened and closed in one process leave nothing behind."""

import os
import pathlib
import subprocess
import sys

import census
import pytest

SUPPORT = pathlib.Path(census.__file__).parent

BROKERS = """
import asyncio, os, sys, tempfile

if sys.argv[1] == "asyncio":
    sys.modules["uvloop"] = None  # the broker lives on a loop of asyncio's then

from census import count_descriptors, take_census
from rocketlet.client import Message, Producer
from rocketlet.testing import RocketmqBroker

def use():
    with RocketmqBroker() as broker:
        topic = broker.topic()
        broker.send(topic, "1", delay_level=1)
        broker.clock.advance(seconds=1)
        broker.receive(topic)

async def use_on_a_loop():
    with RocketmqBroker() as broker:
        topic = await broker.create_topic()
        async with Producer("shop", broker.nameserver) as producer:
            await producer.send(Message(topic, b"1"))
        broker.assert_sent(topic, times=1)
    assert asyncio.all_tasks() == {asyncio.current_task()}

def leave():
    census = take_census(with_brokers=True)
    return census.tasks, census.threads, census.sockets, count_descriptors(with_brokers=True)

before = None
for number in range(26):
    use()
    asyncio.run(use_on_a_loop())
    if number == 0:
        before = leave()  # by then all is imported
assert leave() == before, (before, leave())
print(*before[1], os.listdir(tempfile.gettempdir()))
"""

SUITE = """
import os, tempfile
import pytest
from census import count_descriptors, take_census

def look():
    census = take_census(with_brokers=True)
    return census.threads, census.sockets, count_descriptors(with_brokers=True)

@pytest.fixture(scope="module")
def seen():
    return []

def test_first(isolated_rocketmq_broker):
    isolated_rocketmq_broker.send("orders", "1")
    isolated_rocketmq_broker.receive("orders")

def test_before(seen):
    seen.append(look())

@pytest.mark.parametrize("number", range(50))
def test_sync(number, isolated_rocketmq_broker):
    isolated_rocketmq_broker.topic()

@pytest.mark.parametrize("number", range(50))
async def test_on_a_loop(number, isolated_rocketmq_broker):
    await isolated_rocketmq_broker.create_topic()

def test_after(seen):
    assert look() == seen[0]
    assert os.listdir(tempfile.gettempdir()) == []
"""


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """Return that of a process with a directory of its own for temporary files."""
    (tmp_path / "temporary").mkdir()
    return {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(SUPPORT)}


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_brokers_leave_nothing(loop: str, environment: dict[str, str]) -> None:
    """No thread, descriptor, task or file is there that was not after the first; tests with and without a loop."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", BROKERS, loop],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "MainThread []\n"


def test_fixtures_leave_nothing(
    pytester: pytest.Pytester, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is with a suite of a hundred tests that have a broker each."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name in ("TMPDIR", "PYTHONPATH"):
        monkeypatch.setenv(name, environment[name])
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(SUITE)
    run = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", "-W", "error")
    run.assert_outcomes(passed=103)
