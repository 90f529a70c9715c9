"""Tables in the short forms that are written and read fast."""

import re

import pytest

from rocketlet.common.java_json import read_json, write_json
from rocketlet.common.metadata import (
    CustomizedRetry,
    DataVersion,
    ExponentialRetry,
    GroupRetryPolicy,
    RetryPolicyType,
    SimpleSubscription,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from rocketlet.remoting.bodies.replication import HaStatus, encode_numbered, encode_settings, quote_numbers

POLICIES = [
    GroupRetryPolicy(),
    GroupRetryPolicy(type=RetryPolicyType.EXPONENTIAL, exponential_retry_policy=ExponentialRetry()),
    GroupRetryPolicy(customized_retry_policy=CustomizedRetry(next=[1, 2])),
]
SUBSCRIPTIONS = [None, [], [SimpleSubscription()], [SimpleSubscription(topic="T"), SimpleSubscription(expression="*")]]
NASTY = ['"a":null', ',"a":null,', "null", ":null", "ä/€", "\\", '{0:1},{"1":2}']


def groups() -> SubscriptionGroupTable:
    """Return groups with and without whatever may be missing."""
    table = {
        f"{name}-{number}": SubscriptionGroupConfig(
            group_name=name, attributes={name: name}, group_retry_policy=policy, subscription_data_set=subscriptions
        )
        for name in NASTY
        for number, policy in enumerate(POLICIES)
        for subscriptions in SUBSCRIPTIONS
    }
    return SubscriptionGroupTable(data_version=DataVersion(counter=3), subscription_group_table=table)


@pytest.mark.parametrize(
    "value",
    [
        groups(),
        TopicConfigTable(
            topic_config_table={name: TopicConfig(topic_name=name, attributes={"b": name}) for name in NASTY}
        ),
        SubscriptionGroupTable(),
        HaStatus(),
    ],
    ids=["groups", "topics", "none", "status"],
)
def test_settings_are_written_as_fastjson_writes_them(value: SubscriptionGroupTable) -> None:
    """The text is that of the writer for all bodies: keys in order, nothing that is null."""
    assert encode_settings(value) == write_json(value)


def test_offsets_are_written_with_bare_numbers() -> None:
    """So an official broker writes them; its reader takes both."""
    table = {"T@G": {0: 5, 12: 2**63 - 1}, "%RETRY%G@G": {}, '"1":@G': {3: 0}}
    assert encode_numbered(table) == (b'{"T@G":{0:5,12:9223372036854775807},"%RETRY%G@G":{},"\\"1\\":@G":{3:0}}')


@pytest.mark.parametrize(
    "text", [b'{"T@G":{0:5,1:7}}', b"{ 0 : 1 ,\n12:{}}", b'{"0":1}', b"{-1:2}", b"[1,2]", b"{}", b"7", b""]
)
def test_quoted_numbers_mean_the_same(text: bytes) -> None:
    """What was strict stays as it is."""
    quoted = quote_numbers(text)
    assert re.search(rb"[{,]\s*-?\d+\s*:", quoted) is None
    if text:
        assert read_json(quoted) == read_json(text)


def test_a_text_that_looks_like_numbers_is_not_read_wrongly() -> None:
    """It is no JSON afterwards, rather than another table."""
    assert quote_numbers(b'{"a{0:b":1}') == b'{"a{"0":b":1}'
