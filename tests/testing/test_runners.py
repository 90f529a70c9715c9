"""The fixture with the runners and plugins that suites have: xdist, unittest, pytest-asyncio, anyio."""

import json
import pathlib
import subprocess
import sys

import pytest

WORKERS = """
import json, os, pathlib
import pytest

@pytest.mark.parametrize("number", range(8))
def test_orders(number, rocketmq_broker, worker_id):
    topic = rocketmq_broker.topic("orders" if number % 2 else None)
    rocketmq_broker.send(topic, str(number))
    rocketmq_broker.assert_sent(topic, body=str(number), times=1)
    seen = [worker_id, rocketmq_broker.nameserver, rocketmq_broker.address, str(rocketmq_broker.store)]
    pathlib.Path(__file__).with_name(f"seen-{number}.json").write_text(json.dumps(seen))
"""

UNITTEST = """
import unittest
from rocketlet.client import ConsumeFrom, Message, Producer, PullConsumer, PullConsumerSettings
from rocketlet.testing import RocketmqBroker

class OrdersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = cls.enterClassContext(RocketmqBroker())

    def setUp(self):
        self.broker.reset()

    def test_one(self):
        self.broker.send(self.broker.topic("orders"), "1")
        self.assertEqual([message.body for message in self.broker.receive("orders")], [b"1"])

    def test_other(self):
        self.broker.send(self.broker.topic("orders"), "2", delay_level=5)
        self.broker.clock.advance(minutes=1)
        self.broker.assert_sent("orders", body="2", times=1)

class AsynchronousOrdersTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.broker = self.enterContext(RocketmqBroker())
        self.topic = await self.broker.create_topic()
        self.producer = await self.enterAsyncContext(Producer("shop", self.broker.nameserver))

    async def test_orders(self):
        await self.producer.send(Message(self.topic, b"1"))
        await self.broker.arrived(self.topic)
        settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
        consumer = PullConsumer("shipping", self.broker.nameserver, settings=settings)
        async with consumer:
            consumer.subscribe(self.topic)
            async for message in consumer:
                self.assertEqual(message.body, b"1")
                break

if __name__ == "__main__":
    unittest.main()
"""

UNITTEST_WITH_FIXTURE = """
import unittest
import pytest

class OrdersTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take_broker(self, rocketmq_broker):
        self.broker = rocketmq_broker

    def test_orders(self):
        topic = self.broker.topic()
        self.broker.send(topic, "1")
        self.broker.assert_sent(topic, times=1)
"""

ANYIO = """
import anyio
import pytest
from rocketlet.client import Message, Producer

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend(): return "asyncio"

@pytest.fixture
async def producer(rocketmq_broker):
    async with Producer("shop", rocketmq_broker.nameserver) as producer:
        yield producer

async def test_orders(rocketmq_broker, producer):
    topic = await rocketmq_broker.create_topic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(producer.send, Message(topic, b"1"))
        assert [message.body for message in await rocketmq_broker.arrived(topic)] == [b"1"]
    await rocketmq_broker.idle()
"""

TRIO = """
import pytest
from rocketlet.client import Producer

pytestmark = pytest.mark.anyio

async def test_blocking(rocketmq_broker):
    topic = rocketmq_broker.topic()
    rocketmq_broker.send(topic, "1")
    assert [message.body for message in rocketmq_broker.receive(topic)] == [b"1"]

async def test_waits(rocketmq_broker, anyio_backend_name):
    await rocketmq_broker.create_topic()

async def test_client(rocketmq_broker):
    async with Producer("shop", rocketmq_broker.nameserver):
        pass
"""

PYTEST_ASYNCIO = """
import pytest, pytest_asyncio
from rocketlet.client import Message, Producer

@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(rocketmq_broker):
    async with Producer("shared", rocketmq_broker.nameserver) as producer:
        yield producer

@pytest_asyncio.fixture
async def producer(rocketmq_broker):
    async with Producer("shop", rocketmq_broker.nameserver) as producer:
        yield producer

@pytest.mark.asyncio
async def test_orders(rocketmq_broker, producer):
    topic = await rocketmq_broker.create_topic()
    await producer.send(Message(topic, b"1"))
    await rocketmq_broker.arrived(topic)

@pytest.mark.parametrize("number", range(2))
@pytest.mark.asyncio(loop_scope="session")
async def test_orders_by_a_producer_of_the_session(number, rocketmq_broker, shared):
    topic = await rocketmq_broker.create_topic()
    await shared.send(Message(topic, b"1"))
    rocketmq_broker.assert_sent(topic, times=1)
"""

AUTO = PYTEST_ASYNCIO.replace("@pytest.mark.asyncio\n", "").replace("pytest_asyncio.fixture\n", "pytest.fixture\n")


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a runner for the tests of somebody who has installed rocketlet; warnings are errors there."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


@pytest.fixture
def anyio_suite(suite: pytest.Pytester) -> pytest.Pytester:
    """Return the same without pytest-asyncio."""
    suite.makeini("[pytest]\nfilterwarnings = error\naddopts = -p no:asyncio\n")
    return suite


def test_workers_of_xdist_have_brokers_of_their_own(suite: pytest.Pytester) -> None:
    """Each has one for all its tests, with addresses and a store of its own; the same names do not disturb others."""
    suite.makepyfile(WORKERS)
    suite.runpytest_subprocess("-n", "2").assert_outcomes(passed=8)
    seen = [json.loads(path.read_text()) for path in suite.path.glob("seen-*.json")]
    assert len({tuple(each) for each in seen}) == 2
    for column in zip(*seen, strict=True):
        assert len(set(column)) == 2


def test_unittest_runs_without_pytest(tmp_path: pathlib.Path) -> None:
    """A broker for a class, and one for an asynchronous test; afterwards the process ends without a warning."""
    path = tmp_path / "test_orders.py"
    path.write_text(UNITTEST)
    run = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "Ran 3 tests" in run.stderr


def test_unittest_runs_in_pytest(suite: pytest.Pytester) -> None:
    """The same suite, and test cases that take the fixture."""
    suite.makepyfile(test_plain=UNITTEST, test_fixture=UNITTEST_WITH_FIXTURE)
    suite.runpytest_subprocess().assert_outcomes(passed=4)


def test_anyio_runs_on_asyncio(anyio_suite: pytest.Pytester) -> None:
    """With anyio's own plugin, which runs fixtures and tests."""
    anyio_suite.makepyfile(ANYIO)
    anyio_suite.runpytest_subprocess().assert_outcomes(passed=1)


def test_anyio_runs_beside_pytest_asyncio(suite: pytest.Pytester) -> None:
    """That leaves alone, in its strict mode, what is anyio's."""
    suite.makepyfile(ANYIO)
    suite.runpytest_subprocess().assert_outcomes(passed=1)


def test_trio_is_told_from_asyncio(anyio_suite: pytest.Pytester) -> None:
    """Tests that anyio runs on trio may use what blocks; what is awaited, and clients, say that it is not supported."""
    pytest.importorskip("trio", reason="trio is not installed")
    anyio_suite.makepyfile(test_orders=TRIO)
    result = anyio_suite.runpytest_subprocess("-k", "trio")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "E *RuntimeError: no event loop of asyncio runs here: trio is not supported, blocking methods work with it",
            "E *ClientStateError: * cannot be started here: no event loop of asyncio runs, and trio is not supported",
        ]
    )


@pytest.mark.parametrize(("mode", "text"), [("strict", PYTEST_ASYNCIO), ("auto", AUTO)], ids=["strict", "auto"])
def test_pytest_asyncio_in_both_modes(mode: str, text: str, suite: pytest.Pytester) -> None:
    """Producers of a test have ended when it is checked for leaks; those of the session may stay connected."""
    suite.makepyfile(text)
    suite.runpytest_subprocess("-o", f"asyncio_mode={mode}").assert_outcomes(passed=3)
