"""What the largest request of each code costs: calls that grow with it, and bytes held, below limits that stand here.

Every code that broker or name server answers has a row, or the test of the tables fails. A request in which nothing
may be large is made large by a field that nobody reads.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest
from badinput import samples
from badinput.variations import encode_body
from growth import GROWTH, count_calls, measure
from served import Served

from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode as Code

MOST_CALLS = 2_500_000
"""Of one request, about half a second of the loop."""
MOST_BYTES = 128 << 20
"""Held at once while a request is served, its frame and what is kept of it included."""
MOST_KEPT_BYTES = 64 << 20

Parts = tuple[Mapping[str, str], bytes]
Build = Callable[[int, str], Parts]


class Row(NamedTuple):
    """How a request is made that has ``n`` of something, the largest ``n`` that is taken, and how one more is refused.

    ``None`` where a frame, the properties of a message or the setting of a queue end it before.
    """

    build: Build
    most: int
    refusal: int | None = None


def padded(sample: Mapping[str, str], body: Any, count: int, _salt: str) -> Parts:
    """Return a good request with a field of so many characters that nobody reads."""
    return {**sample, "unheardOf": "x" * count}, encode_body(body)


def groups(count: int, salt: str) -> Parts:
    """Return a heartbeat of so many groups, each with 16 filters."""
    consumers = [
        {
            "groupName": f"g{salt}{number}",
            "subscriptionDataSet": [
                {"topic": f"T{number}-{part}", "subString": f"a={number}", "expressionType": "SQL92", "subVersion": 1}
                for part in range(16)
            ],
        }
        for number in range(count)
    ]
    producers = [{"groupName": f"p{salt}{number}"} for number in range(count)]
    data = {"clientID": salt, "consumerDataSet": consumers, "producerDataSet": producers}
    return {}, json.dumps(data).encode()


def subscriptions(count: int, salt: str) -> Parts:
    """Return a heartbeat of one group with so many topics."""
    topics = [{"topic": f"T{number}", "subString": "a > 1", "expressionType": "SQL92"} for number in range(count)]
    data = {"clientID": salt, "consumerDataSet": [{"groupName": f"g{salt}", "subscriptionDataSet": topics}]}
    return {}, json.dumps(data).encode()


def tagged(count: int, salt: str) -> Parts:
    """Return a heartbeat with so many tags."""
    tags = [f"t{number}" for number in range(count)]
    data = {"topic": "T", "subString": "||".join(tags), "tagsSet": tags, "codeSet": list(range(count))}
    group = {"groupName": f"g{salt}", "subscriptionDataSet": [data]}
    return {}, json.dumps({"clientID": salt, "consumerDataSet": [group]}).encode()


def queues(count: int, salt: str) -> Parts:
    """Return the body of 41 and 42."""
    names = [{"topic": f"T{salt}", "brokerName": "b", "queueId": number} for number in range(count)]
    return {}, json.dumps({"clientId": "c", "consumerGroup": f"g{salt}", "mqSet": names}).encode()


def batch(count: int, _salt: str) -> Parts:
    """Return a batch of so many small messages with keys."""
    parts = encode_batch(BatchPart(0, b"x", b"KEYS\x01k\x02") for _ in range(count))
    return {**samples.LETTER_SEND, "m": "true"}, parts


def properties(field: str, sample: Mapping[str, str], count: int, _salt: str) -> Parts:
    """Return a send with so many properties."""
    return {**sample, field: samples.REPLY + "".join(f"{number:x}\x01v\x02" for number in range(count))}, b"body"


def keys(count: int, _salt: str) -> Parts:
    """Return a send with so many keys."""
    return {**samples.LETTER_SEND, "i": f"KEYS\x01{' '.join(['k'] * count)}\x02"}, b"body"


def pull_of(kind: str, count: int, _salt: str) -> Parts:
    """Return a pull by so many tags, or by an expression of so many values and properties."""
    tags = "||".join(f"t{number}" for number in range(count))
    expression = tags if kind == "TAG" else "OR ".join(["a=1"] * (count // 2))
    return {**samples.PULL, "expressionType": kind, "subscription": expression, "queueOffset": "3", "sysFlag": "6"}, b""


def popped_by(kind: str, count: int, salt: str) -> Parts:
    """Return a pop by so many tags, or by an expression of so many values and properties."""
    fields, _ = pull_of(kind, count, salt)
    return {**samples.POP, "expType": kind, "exp": fields["subscription"]}, b""


def acknowledged(count: int, _salt: str) -> Parts:
    """Return acknowledgements of so many leases."""
    [entry] = samples.BATCH_ACK["acks"]
    return {}, json.dumps({**samples.BATCH_ACK, "acks": [{**entry, "so": number} for number in range(count)]}).encode()


def checked(count: int, _salt: str) -> Parts:
    """Return the question whether an expression can be served."""
    wanted = {**samples.SUBSCRIPTION, "expressionType": "SQL92", "subString": "OR ".join(["a=1"] * (count // 2))}
    return {}, json.dumps({"clientId": "c", "group": "g", "subscriptionData": wanted}).encode()


def group_config(count: int, salt: str) -> Parts:
    """Return a group with so much of everything that it may have."""
    many = {
        "attributes": {str(number): "x" * 100 for number in range(count)},
        "subscriptionDataSet": [{"topic": "T", "expression": "x" * 100}] * count,
        "groupRetryPolicy": {"customizedRetryPolicy": {"next": [1] * count}},
    }
    return {}, json.dumps({**samples.GROUP_CONFIG, "groupName": f"g{salt}", **many}).encode()


def listed_topics(count: int, salt: str) -> Parts:
    """Return so many topics to be made at once."""
    topics = [{**samples.LISTED_TOPIC, "topicName": f"T{salt}{number}"} for number in range(count)]
    return {}, json.dumps({"topicConfigList": topics}).encode()


def listed_groups(count: int, salt: str) -> Parts:
    """Return so many groups to be made at once."""
    groups = [{**samples.GROUP_CONFIG, "groupName": f"g{salt}{number}"} for number in range(count)]
    return {}, json.dumps({"groupConfigList": groups}).encode()


def filtered_groups(count: int, _salt: str) -> Parts:
    """Return a comparison in which so many groups do not count."""
    names = ",".join(f"g{number}" for number in range(count))
    return {"filterGroups": names, "compareGroup": samples.GROUP, "topic": samples.TOPIC}, b""


def granted(count: int, salt: str) -> Parts:
    """Return so many entries for a user."""
    entries = [{**samples.ACL_ENTRY, "resource": f"Topic:{salt}{number}"} for number in range(count)]
    return samples.SUBJECT, json.dumps({"policies": [{"entries": entries}]}).encode()


def cold_limits(count: int, salt: str) -> Parts:
    """Return limits of cold data for so many groups."""
    return {}, b"".join(b"g%d=%d\n" % (number, len(salt)) for number in range(count))


def registration(count: int, salt: str) -> Parts:
    """Return a registration of so many topics."""
    topics = {f"T{salt}{number}": {"topicName": f"T{salt}{number}"} for number in range(count)}
    body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics, "dataVersion": {"counter": count}}}
    return {key: text for key, text in samples.REGISTER.items() if key != "bodyCrc32"}, json.dumps(body).encode()


def compressed_registration(count: int, salt: str) -> Parts:
    """Return a compressed registration of so many topics, each described in words of its own."""
    texts = [f"T{salt}{number} {number} 4 6 SINGLE_TAG {{}}".encode() for number in range(count)]
    parts = [b'{"counter":%d}' % count, *texts, b"[]"]
    version, *topics, filters = [len(part).to_bytes(4, "big") + part for part in parts]
    body = zlib.compress(b"".join([version, count.to_bytes(4, "big"), *topics, filters, bytes(4)]))
    return {key: text for key, text in samples.REGISTER.items() if key != "bodyCrc32"}, body


def brokers(count: int, salt: str) -> Parts:
    """Return the queues of a topic at so many brokers."""
    names = [
        {"brokerName": f"b{number}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for number in range(count)
    ]
    return {"topic": f"T{salt}"}, json.dumps({"queueDatas": names}).encode()


def settings_of(count: int, _salt: str) -> Parts:
    """Return settings of so many lines that go on."""
    return {}, b"a\\\n" * count


def value(count: int, _salt: str) -> Parts:
    """Return an entry of the key-value table."""
    return {"namespace": "n", "key": "k", "value": "v" * (count - 2)}, b""


PADDING = 7_000_000
TOO_MANY = int(ResponseCode.SYSTEM_ERROR)
NO_FILTER = int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
PULLS = (Row(partial(pull_of, "TAG"), 4_096, NO_FILTER), Row(partial(pull_of, "SQL92"), 4_096, NO_FILTER))
SPECIAL: dict[int, tuple[Row, ...]] = {
    Code.HEART_BEAT: (Row(groups, 1_024, TOO_MANY), Row(subscriptions, 4_096, TOO_MANY), Row(tagged, 4_096, TOO_MANY)),
    Code.LOCK_BATCH_MQ: (Row(queues, 16_384, TOO_MANY),),
    Code.UNLOCK_BATCH_MQ: (Row(queues, 16_384, TOO_MANY),),
    Code.SEND_BATCH_MESSAGE: (Row(batch, 65_536, TOO_MANY),),
    Code.SEND_MESSAGE: (Row(partial(properties, "properties", samples.LONG_SEND), 4_000),),
    Code.SEND_MESSAGE_V2: (Row(partial(properties, "i", samples.LETTER_SEND), 4_000), Row(keys, 16_000)),
    Code.SEND_REPLY_MESSAGE: (Row(partial(properties, "properties", samples.LONG_SEND), 4_000),),
    Code.SEND_REPLY_MESSAGE_V2: (Row(partial(properties, "i", samples.LETTER_SEND), 4_000),),
    Code.PULL_MESSAGE: PULLS,
    Code.LITE_PULL_MESSAGE: PULLS,
    Code.CHECK_CLIENT_CONFIG: (Row(checked, 4_096, NO_FILTER),),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (Row(group_config, 256, TOO_MANY),),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: (Row(listed_topics, 4_096, TOO_MANY),),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (Row(listed_groups, 4_096, TOO_MANY),),
    Code.QUERY_CORRECTION_OFFSET: (Row(filtered_groups, 1_000_000),),
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: (Row(cold_limits, 1_000, TOO_MANY),),
    Code.AUTH_CREATE_ACL: (Row(granted, 4_096, TOO_MANY),),
    Code.AUTH_UPDATE_ACL: (Row(granted, 4_096, TOO_MANY),),
    Code.REGISTER_BROKER: (Row(registration, 100_000, TOO_MANY), Row(compressed_registration, 100_000, TOO_MANY)),
    Code.REGISTER_TOPIC_IN_NAMESRV: (Row(brokers, 16_384, TOO_MANY),),
    Code.UPDATE_NAMESRV_CONFIG: (Row(settings_of, 10_000, TOO_MANY),),
    Code.UPDATE_BROKER_CONFIG: (Row(settings_of, 10_000, TOO_MANY),),
    Code.PUT_KV_CONFIG: (Row(value, 1 << 20, TOO_MANY),),
    Code.POP_MESSAGE: (
        Row(partial(popped_by, "TAG"), 4_096, NO_FILTER),
        Row(partial(popped_by, "SQL92"), 4_096, NO_FILTER),
    ),
    Code.BATCH_ACK_MESSAGE: (Row(acknowledged, 1_024, TOO_MANY),),
}


def rows(known: list[samples.Sample]) -> list[tuple[int, Row]]:
    """Return the rows of a server, by request code."""
    found = [(sample.code, Row(partial(padded, sample.fields, sample.body), PADDING)) for sample in known]
    codes = {sample.code for sample in known}
    return [*found, *((code, row) for code, special in SPECIAL.items() if code in codes for row in special)]


BROKER_ROWS = rows(samples.BROKER)
NAME_SERVER_ROWS = rows(samples.NAME_SERVER)


def frame(code: int, row: Row, count: int, salt: str) -> bytes:
    """Return a request."""
    fields, body = row.build(count, salt)
    return encode_command(Command.request(code, fields, body))


def check(code: int, row: Row, served: Served) -> None:
    """Serve the request with n, with 2n and once more with 2n; all but the first are as large as is accepted."""
    serve = served.connection.data_received
    count_calls(partial(serve, frame(code, row, row.most // 64, "warm")))
    once = count_calls(partial(serve, frame(code, row, row.most // 2, "once")))
    twice = count_calls(partial(serve, frame(code, row, row.most, "full")))
    assert twice <= GROWTH * once + 200
    assert twice <= MOST_CALLS
    spent = measure(partial(serve, frame(code, row, row.most, "held")), counts_calls=False)
    assert spent.peak_bytes <= MOST_BYTES
    assert spent.kept_bytes <= MOST_KEPT_BYTES


def named(known: list[tuple[int, Row]]) -> list[Any]:
    """Return the rows as parameters, with names."""
    return [pytest.param(*row, id=f"{row[0]}-{number}") for number, row in enumerate(known)]


@pytest.mark.parametrize(("code", "row"), named(BROKER_ROWS))
async def test_largest_request_to_a_broker(code: int, row: Row, served_broker: Served) -> None:
    """Calls grow with the request, and neither they nor the bytes held exceed the limits."""
    check(code, row, served_broker)


@pytest.mark.parametrize(("code", "row"), named(NAME_SERVER_ROWS))
async def test_largest_request_to_a_name_server(code: int, row: Row, served_nameserver: Served) -> None:
    """The same for every code that a name server answers."""
    check(code, row, served_nameserver)


REFUSING = [(code, row) for code, special in SPECIAL.items() for row in special if row.refusal is not None]


@pytest.mark.parametrize(("code", "row"), named(REFUSING))
async def test_what_is_larger_is_refused(code: int, row: Row, served_broker: Served, served_nameserver: Served) -> None:
    """The largest request is taken, and with two more of what it has too much of it is not."""
    served = served_broker if code in served_broker.handlers else served_nameserver
    transport = served.transport
    for count, is_refused in ((row.most, False), (row.most + 2, True)):
        transport.last_write = b""
        served.connection.data_received(frame(code, row, count, str(count)))
        refused = f'"code":{row.refusal},"extFields"'.encode()
        assert (refused in transport.last_write) is is_refused


async def test_every_code_has_a_row(served_broker: Served, served_nameserver: Served) -> None:
    """A handler that is added needs a row: how large may what it takes become, and what does that cost."""
    assert {int(code) for code, _ in BROKER_ROWS} >= set(served_broker.handlers)
    assert {int(code) for code, _ in NAME_SERVER_ROWS} >= set(served_nameserver.handlers)
