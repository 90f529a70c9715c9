"""`rocketlet up --topic`: topics that are there when clients can connect."""

import pytest
from command_line import Refuse, Start
from guarded import GUARDED, open_signed

from rocketlet.client import Admin, TopicSettings
from rocketlet.remoting.codec.request_codes import RequestCode

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


async def queues_of(nameserver: str, topic: str) -> dict[str, tuple[int, int]]:
    """Return how many queues each broker has to read and to write."""
    async with Admin(nameserver) as admin:
        return {name: (each.read_queues, each.write_queues) for name, each in (await admin.topic(topic)).items()}


@pytest.mark.parametrize("brokers", ["1", "2"])
async def test_topics_are_there(start: Start, brokers: str) -> None:
    """On each master, with as many queues as were asked for, or 8, also where sends may not make topics."""
    options = ("--topic", "orders:3", "--topic", "payments", "--set", "autoCreateTopicEnable=false")
    running = start("up", "--ephemeral", "--brokers", brokers, *options, *FREE_PORTS)
    names = ["broker-a", "broker-b"][: int(brokers)]
    nameserver = running.addresses["namesrv"]
    assert await queues_of(nameserver, "orders") == dict.fromkeys(names, (3, 3))
    assert await queues_of(nameserver, "payments") == dict.fromkeys(names, (8, 8))
    assert running.stop()[0] == 0


async def test_slaves_have_them_of_their_masters(start: Start) -> None:
    """Only masters are asked."""
    running = start("up", "--ephemeral", "--slaves", "1", "--topic", "orders:3", *FREE_PORTS)
    assert await queues_of(running.addresses["namesrv"], "orders") == {"broker-a": (3, 3)}
    assert running.stop()[0] == 0


async def test_protected_broker_is_asked_in_the_name_of_its_settings(start: Start) -> None:
    """By a super user whom the start makes: who else may ask is yet to be said."""
    security = [option for key, value in GUARDED.items() for option in ("--set", f"{key}={value}")]
    running = start("up", "--ephemeral", "--topic", "orders:3", *security, *FREE_PORTS)
    async with open_signed(running.addresses["broker"]) as admin:
        answer = await admin.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
    assert b'"readQueueNums":3' in answer.body
    assert running.stop()[0] == 0


async def test_told_address_does_not_matter(start: Start) -> None:
    """Brokers are asked where this machine reaches them, not where clients are sent."""
    running = start("up", "--ephemeral", "--advertise", "192.0.2.7", "--topic", "orders:3", *FREE_PORTS)
    assert running.addresses["broker"].startswith("192.0.2.7:")
    assert running.stop()[0] == 0


async def test_topic_that_is_there_keeps_what_it_is(start: Start) -> None:
    """More queues are added where more are asked for; fewer would hide messages, and nothing else changes."""
    running = start("up", "--store", "store", *FREE_PORTS)
    async with Admin(running.addresses["namesrv"]) as admin:
        settings = TopicSettings(read_queues=4, write_queues=2, attributes={"message.type": "FIFO"})
        await admin.create_topic("orders", settings)
    assert running.stop()[0] == 0
    for option, expected in {"orders": (4, 2), "orders:1": (4, 2), "orders:3": (4, 3), "orders:5": (5, 5)}.items():
        running = start("up", "--store", "store", "--topic", option, *FREE_PORTS)
        assert await queues_of(running.addresses["namesrv"], "orders") == {"broker-a": expected}
        async with Admin(running.addresses["namesrv"]) as admin:
            assert (await admin.topic("orders"))["broker-a"].attributes == {"message.type": "FIFO"}
        assert running.stop()[0] == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["orders:"], "'orders:' is not NAME or NAME:QUEUES, with 1 to 65535 queues"),
        (["orders:many"], "'orders:many' is not NAME or NAME:QUEUES"),
        (["orders:0"], "'orders:0' is not NAME or NAME:QUEUES"),
        (["orders:65536"], "'orders:65536' is not NAME or NAME:QUEUES"),
        (["orders:8:8"], "'orders:8:8' is not NAME or NAME:QUEUES"),
        (["orders:٣"], "is not NAME or NAME:QUEUES"),
        ([""], "The specified topic is blank."),
        (["my orders"], "contains illegal characters"),
        (["o" * 128], "is longer than topic max length: 127"),
        (["SCHEDULE_TOPIC_XXXX"], "SCHEDULE_TOPIC_XXXX is a topic of the system"),
        (["orders", "orders:3"], "orders is named twice, with different queues"),
    ],
)
def test_bad_values_are_refused(refuse: Refuse, values: list[str], said: str) -> None:
    """One line says what is wrong, before anything starts."""
    line = refuse("up", "--ephemeral", *[word for value in values for word in ("--topic", value)], *FREE_PORTS)
    assert line.startswith("rocketlet: Invalid value for '--topic': ")
    assert said in line


def test_topic_that_the_broker_refuses(refuse: Refuse) -> None:
    """Its own topics cannot be changed; the start ends with what it says."""
    line = refuse("up", "--ephemeral", "--topic", "DefaultCluster:40", *FREE_PORTS)
    assert line.startswith("rocketlet: topic DefaultCluster cannot be created at 127.0.0.1:")
    assert "is conflict with system topic." in line
