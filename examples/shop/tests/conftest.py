"""What the suites for pytest share: a bank, and the names of a test's own."""

import pytest

from bank import ScriptedBank
from rocketlet.testing import RocketmqBroker
from shop import Places


@pytest.fixture
def bank() -> ScriptedBank:
    """Return the bank of a test."""
    return ScriptedBank()


@pytest.fixture
def places(rocketmq_broker: RocketmqBroker) -> Places:
    """Make the topics and groups of a test."""
    broker = rocketmq_broker
    return Places(broker.topic(), broker.topic(), broker.group(), broker.group(), broker.group())
