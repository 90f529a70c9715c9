from typing import Any

import pytest
from javastores import java_cases

from rocketlet.common import names

CASES = java_cases("codec/names.json")


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["name"])[:20])
def test_client_judges_names_as_java_does(case: dict[str, Any]) -> None:
    """Every recorded name is accepted or refused with the Java client's words."""
    assert (names.client_topic_remark(case["name"]) or "ok") == case["clientTopic"]
    assert (names.client_group_remark(case["name"]) or "ok") == case["clientGroup"]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["name"] is not None], ids=lambda c: repr(c["name"])[:20]
)
def test_broker_judges_names_as_java_does(case: dict[str, Any]) -> None:
    """Every recorded name is accepted or refused with the Java broker's words, and has its kind."""
    name = case["name"]
    assert (names.broker_topic_remark(name) or "") == case["brokerTopicRemark"]
    assert (names.broker_group_remark(name) or "") == case["brokerGroupRemark"]
    assert names.is_system_topic(name) == case["isSystemTopic"]
    assert names.is_sendable_topic(name) != case["isNotAllowedSendTopic"]


def test_derived_names() -> None:
    """Retry, dead letter and reply topics have their prefixes and suffix."""
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


def test_system_groups() -> None:
    """Groups with the system prefix are system groups; other reserved ones are not."""
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert not names.is_system_group("TOOLS_CONSUMER")
