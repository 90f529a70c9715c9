"""Which queues members read, against what Java's broker said."""

import json
from typing import Any

import pytest
from javastores import VECTORS

from rocketlet.broker.pop.assignment import Asking, Sharing, assign
from rocketlet.common.message import MessageQueue

EXCHANGES: list[dict[str, Any]] = json.loads((VECTORS / "pop/pop-assignment.json").read_text())["exchanges"]
TOPIC, GROUP = "QA376422", "QL376422"
SIX_FROM = "set POP share 1, 6 clients on 4 queues"


def recorded() -> list[tuple[str, dict[str, Any], Sharing, int, list[tuple[int, str]] | None]]:
    """Return each question about the topic: its name, itself, how the group shared then, and what was answered."""
    cases: list[tuple[str, dict[str, Any], Sharing, int, list[tuple[int, str]] | None]] = []
    mode, share, count = "PULL", -1, 0
    for exchange in EXCHANGES:
        asked = json.loads(exchange["body"])
        count = 6 if exchange["name"] == SIX_FROM else count or (3 if exchange["name"] == "pull c0" else 0)
        if exchange["code"] == 401:
            if exchange["answer"]["code"] == 0 and asked["consumerGroup"] == GROUP:
                mode, share = asked["mode"], asked["popShareQueueNum"]
        elif asked["topic"] == TOPIC and asked["messageModel"] == "CLUSTERING":
            told = json.loads(exchange["answer"]["body"]).get("messageQueueAssignments")
            found = told and sorted((each["messageQueue"]["queueId"], each["mode"]) for each in told)
            sharing = Sharing(mode=mode, share=share, strategy=asked["strategyName"])
            cases.append((exchange["name"], asked, sharing, count, found))
    return cases


@pytest.mark.parametrize(
    ("name", "asked", "sharing", "count", "told"), recorded(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_queues_are_those_of_java(
    name: str, asked: dict[str, Any], sharing: Sharing, count: int, told: list[tuple[int, str]] | None
) -> None:
    """Groups that pull and that pop, of no, three and six members; strangers too."""
    queues = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in range(4)]
    members = Asking(group=GROUP, client_ids=[f"c{number}" for number in range(count)], client_id=asked["clientId"])
    found = assign(queues, members, sharing)
    ours = found if found is None else sorted((queue.queue_id, sharing.mode) for queue in found)
    assert ours == told, name


def test_topic_without_a_route_says_nothing() -> None:
    """Members keep what they have."""
    members = Asking(group=GROUP, client_ids=["c0"], client_id="c0")
    assert assign([], members, Sharing()) is None


def test_queue_minus_one_stands_once_for_each_broker() -> None:
    """Of a cluster of two."""
    queues = [MessageQueue(TOPIC, broker, queue_id) for broker in ("b", "a") for queue_id in range(3)]
    members = Asking(group=GROUP, client_ids=["c0"], client_id="c0")
    assert assign(queues, members, Sharing(mode="POP", share=0)) == [
        MessageQueue(TOPIC, "a", -1),
        MessageQueue(TOPIC, "b", -1),
    ]
