"""The fixture `rocketmq_broker`, as our tests and those of others use it."""

import asyncio
import os
import subprocess
import sys

import pytest

from rocketlet.client import ConsumeFrom, Message, Producer, PullConsumer, PullConsumerSettings
from rocketlet.common.errors import ConfigError
from rocketlet.testing import RocketmqBroker

LEAKS = """
import pytest
from rocketlet.client import Message, Producer

async def test_leaks(rocketmq_broker, request):
    producer = await Producer("leaking", nameserver=rocketmq_broker.nameserver).__aenter__()
    request.session.leaked = producer  # nothing collects it before the check has looked
    await producer.send(Message(await rocketmq_broker.create_topic(), b"1"))

async def test_closes(rocketmq_broker):
    async with Producer("tidy", nameserver=rocketmq_broker.nameserver) as producer:
        await producer.send(Message(await rocketmq_broker.create_topic(), b"1"))
"""


LEAKS_OF_AN_APPLICATION = """
import subprocess, sys
from rocketlet.client import Message, Producer, PushConsumer, Session

ELSEWHERE = '''
import asyncio, sys
from rocketlet.client import Message, Producer
async def main():
    async with Producer("elsewhere", nameserver=sys.argv[1]) as producer:
        await producer.send(Message("orders", b"1"))
        print("sent", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
'''

class Application:
    async def start(self, nameserver):
        self.session = await Session(nameserver).__aenter__()
        self.producer = await Producer("selling", session=self.session).__aenter__()
        self.consumer = PushConsumer("shipping", session=self.session)
        self.consumer.subscribe("orders", "*", self.ship)
        await self.consumer.__aenter__()

    async def ship(self, messages): ...

async def test_leaks(isolated_rocketmq_broker, request):
    await isolated_rocketmq_broker.create_topic("orders")
    request.session.leaked = Application()
    await request.session.leaked.start(isolated_rocketmq_broker.nameserver)
    await request.session.leaked.producer.send(Message("orders", b"1"))

def test_leaks_elsewhere(isolated_rocketmq_broker, request):
    isolated_rocketmq_broker.topic("orders")
    command = [sys.executable, "-c", ELSEWHERE, isolated_rocketmq_broker.nameserver]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    request.session.elsewhere = process
    assert process.stdout.readline() == b"sent\\n"
    print("pid", process.pid)
"""


INNER_SESSION = """
from rocketlet.client import Message, Producer

async def send(broker):
    async with Producer("plugin", nameserver=broker.nameserver) as producer:
        await producer.send(Message(await broker.create_topic(), b"1", keys=["a"]))

async def test_before(rocketmq_broker):
    await send(rocketmq_broker)

def test_inner_session(pytester):
    pytester.makepyfile("def test_numpy(): import numpy")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)

async def test_after(rocketmq_broker):
    await send(rocketmq_broker)
"""


@pytest.fixture
def outer_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a runner for the tests of somebody who has installed rocketlet."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


async def test_message_goes_in_and_out(rocketmq_broker: RocketmqBroker):
    """Clients on the test's own loop send to the broker of the session and consume from it."""
    topic = await rocketmq_broker.create_topic(queues=2)
    async with Producer("plugin", nameserver=rocketmq_broker.nameserver) as producer:
        await producer.send(Message(topic, b"hello"))
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
    async with PullConsumer("plugin", nameserver=rocketmq_broker.nameserver, settings=settings) as consumer:
        consumer.subscribe(topic)
        async for message in consumer:
            assert message.body == b"hello"
            break


def test_topics_are_new_and_named_after_the_test(rocketmq_broker: RocketmqBroker):
    """Each call without a name makes another topic, and its name tells the test."""
    first, second = rocketmq_broker.topic(), rocketmq_broker.topic(queues=1)
    assert first != second
    assert first.startswith("test_topics_are_new_and_named_after_the_test-")
    assert rocketmq_broker.topic("orders") == "orders"


def test_bad_topic_is_refused(rocketmq_broker: RocketmqBroker):
    """A name that no broker takes is a ValueError with the broker's words."""
    with pytest.raises(ValueError, match="contains illegal characters"):
        rocketmq_broker.topic("a/b")


async def test_messages_are_what_was_sent(rocketmq_broker: RocketmqBroker):
    """`messages` returns everything that is stored in a topic, more than one read brings."""
    topic = await rocketmq_broker.create_topic(queues=3)
    async with Producer("plugin", nameserver=rocketmq_broker.nameserver) as producer:
        for number in range(100):
            await producer.send(Message(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd"))
    stored = rocketmq_broker.messages(topic)
    assert sorted(int(message.body) for message in stored) == list(range(100))
    assert {message.tags for message in stored if int(message.body) % 2} == {"odd"}
    with pytest.raises(ValueError, match="there is no topic 'no-such-topic'"):
        rocketmq_broker.messages("no-such-topic")


def test_store_is_a_directory_while_the_broker_runs():
    """The store is removed when the broker stops."""
    with RocketmqBroker() as broker:
        store = broker.store
        assert (store / "abort").exists()
        assert repr(broker) == f"<RocketmqBroker {broker.address}, name server {broker.nameserver}>"
    assert not store.exists()


def test_bad_settings_fail_the_start():
    """A setting that cannot be used is raised to who starts the broker, and nothing is left behind."""
    broker = RocketmqBroker({"brokerRole": "SLAVE"})
    with pytest.raises(ConfigError, match="brokerId"):
        broker.__enter__()
    assert not broker.store.exists()


def test_leaking_test_is_an_error(outer_pytest: pytest.Pytester):
    """A test that leaves a producer connected gets an error with client, group and place; the next is not blamed."""
    outer_pytest.makepyfile(LEAKS)
    result = outer_pytest.runpytest_subprocess("-W", "ignore")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.re_match_lines(
        [
            r".*still connected to the broker at the end of the test:",
            r".*@\d+#\d+ \(producer of leaking\)",
        ]
    )


def test_leak_is_shown_with_the_lines_that_opened_it(outer_pytest: pytest.Pytester):
    """The report has the calls of the test and of its application, and of a client elsewhere the process."""
    outer_pytest.makepyfile(LEAKS_OF_AN_APPLICATION)
    result = outer_pytest.runpytest_subprocess("-W", "ignore", "-p", "no:randomly")
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.re_match_lines(
        [
            r"still connected to the broker at the end of the test:",
            r".*@\d+#\d+ \(consumer of shipping, producer of selling\)",
            r"  consumer of shipping was opened here, the innermost call last:",
            r"    File \".*test_leak_is_shown.*\.py\", line 28, in test_leaks",
            r"      await request.session.leaked.start\(isolated_rocketmq_broker.nameserver\)",
            r"    File \".*\.py\", line 21, in start",
            r"      await self.consumer.__aenter__\(\)",
            r"  producer of selling was opened here, the innermost call last:",
            r"    File \".*\.py\", line 28, in test_leaks",
            r"      await request.session.leaked.start\(isolated_rocketmq_broker.nameserver\)",
            r"    File \".*\.py\", line 18, in start",
            r"      self.producer = await Producer\(\"selling\", session=self.session\).__aenter__\(\)",
        ],
        consecutive=True,
    )
    [pid] = [line.partition(" ")[2] for line in result.outlines if line.startswith("pid ")]
    elsewhere = next(at for at, line in enumerate(result.outlines) if f"@{pid}#" in line)
    assert result.outlines[elsewhere].endswith("(producer of elsewhere)")
    assert "opened here" not in result.outlines[elsewhere + 1]


def test_leak_check_can_be_turned_off(outer_pytest: pytest.Pytester):
    """The ini option turns the check off."""
    outer_pytest.makepyfile(LEAKS)
    outer_pytest.runpytest_subprocess("-W", "ignore", "-o", "rocketmq_leak_check=false").assert_outcomes(passed=2)


def test_settings_can_be_overridden(outer_pytest: pytest.Pytester):
    """A conftest gives the broker of its session other settings."""
    outer_pytest.makeconftest(
        """
        import pytest
        @pytest.fixture(scope="session")
        def rocketmq_settings(): return {"autoCreateTopicEnable": "false"}
        """
    )
    outer_pytest.makepyfile(
        """
        import pytest
        from rocketlet.client import Message, Producer
        from rocketlet.common.errors import RocketletError
        async def test_no_topic(rocketmq_broker):
            async with Producer("plain", nameserver=rocketmq_broker.nameserver) as producer:
                with pytest.raises(RocketletError):
                    await producer.send(Message("not-there", b"1"))
        """
    )
    outer_pytest.runpytest_subprocess().assert_outcomes(passed=1)


def test_brokers_of_a_suite_start_from_its_snapshot(outer_pytest: pytest.Pytester):
    """A conftest names the file, and the brokers of its session and of single tests have what it holds."""
    with RocketmqBroker() as broker:
        broker.send(broker.topic("orders"), "1")
        broker.snapshot(outer_pytest.path / "shop.tar")
    outer_pytest.makeconftest(
        """
        import pathlib, pytest
        @pytest.fixture(scope="session")
        def rocketmq_snapshot(): return pathlib.Path(__file__).parent / "shop.tar"
        """
    )
    outer_pytest.makepyfile(
        """
        def test_moves_time(rocketmq_broker):
            rocketmq_broker.send("orders", "2")
            rocketmq_broker.clock.advance(hours=1)
        def test_starts_anew(rocketmq_broker): rocketmq_broker.assert_sent("orders", times=1)
        def test_isolated(isolated_rocketmq_broker): isolated_rocketmq_broker.assert_sent("orders", body="1", times=1)
        """
    )
    outer_pytest.runpytest_subprocess().assert_outcomes(passed=3)


def test_plugin_imports_nothing_heavy():
    """A run without our fixtures pays for the plugin's own lines only."""
    code = "import pytest, sys; had = set(sys.modules); import rocketlet.testing.plugin; print(*set(sys.modules) - had)"
    environment = {**os.environ, "PYTHONPATH": ""}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert set(run.stdout.split()) == {"rocketlet", "rocketlet.testing", "rocketlet.testing.plugin"}


def test_session_inside_the_session_does_not_hurt_the_stop(outer_pytest: pytest.Pytester):
    """A suite that runs pytest in its own process stops the broker cleanly, with warnings as errors."""
    outer_pytest.makepyfile(INNER_SESSION)
    outer_pytest.runpytest_subprocess("-W", "error", "-p", "pytester").assert_outcomes(passed=3)


async def test_topic_of_a_busy_machine_is_waited_for(rocketmq_broker: RocketmqBroker):
    """The creation of a topic has no time limit of its own: here a minute of the broker passes before it is read."""
    async with asyncio.TaskGroup() as tasks:
        creating = tasks.create_task(rocketmq_broker.create_topic("busy-orders"))
        await asyncio.sleep(0)  # it has been handed over
        rocketmq_broker.clock.advance(minutes=1)
    assert creating.result() == "busy-orders"
