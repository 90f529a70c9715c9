import enum
from typing import Literal

import msgspec
import pytest

from rocketlet.common.errors import JsonError
from rocketlet.common.json.javajson import read_json_as
from rocketlet.common.message import MessageQueue

QUEUE = MessageQueue("T", "b", 0)
RAW_QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'


class MessageModel(enum.IntEnum):
    """An enum with numbers of its own."""

    BROADCASTING = 10
    CLUSTERING = 11


class Everything(msgspec.Struct):
    """One field of each kind."""

    number: int = -1
    real: float = -1.0
    switch: bool = False
    text: str = "none"
    maybe: int | str = 0
    texts: list[str] = []
    table: dict[str, str] = {}
    model: MessageModel = MessageModel.BROADCASTING
    queue: MessageQueue | None = None
    pair: tuple[int, ...] = ()
    where: Literal["FIRST", "LAST"] | None = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"number":"5"}', Everything(number=5)),
        ('{"number":5.9}', Everything(number=5)),
        ('{"number":""}', Everything()),
        ('{"number":"null"}', Everything()),
        ('{"number":null,"text":null,"switch":null}', Everything()),
        ('{"real":"1.5"}', Everything(real=1.5)),
        ('{"real":""}', Everything()),
        ('{"switch":"true"}', Everything(switch=True)),
        ('{"switch":1}', Everything(switch=True)),
        ('{"text":5,"number":true}', Everything(text="5", number=1)),
        ('{"text":1.5}', Everything(text="1.5")),
        ('{"text":{"x":[1,true]}}', Everything(text='{"x":[1,true]}')),
        ('{"maybe":"x"}', Everything(maybe="x")),
        (
            '{"texts":[1,null,"a",{"x":{"$ref":"$.text"}}],"text":"t"}',
            Everything(texts=["1", "a", '{"x":"t"}'], text="t"),
        ),
        ('{"table":{"a":true,"b":null,"c":{}}}', Everything(table={"a": "true", "c": "{}"})),
        ('{"model":"CLUSTERING"}', Everything(model=MessageModel.CLUSTERING)),
        ('{"model":1}', Everything(model=MessageModel.CLUSTERING)),
        ('{"model":"NONE","number":1}', Everything(number=1)),
        (f'{{"queue":{RAW_QUEUE}}}', Everything(queue=QUEUE)),
        ('{"queue":{"brokerName":5,"topic":true}}', Everything(queue=MessageQueue("true", "5", 0))),
        ('{"queue":{"brokerName":"b","queueId":"","topic":"T"}}', Everything(queue=QUEUE)),
        ('{"queue":{"brokerName":"b","queueId":0.5,"topic":"T"}}', Everything(queue=QUEUE)),
        ('{"pair":["1",2]}', Everything(pair=(1, 2))),
        ('{"pair":5}', Everything(pair=(5,))),
        ('{"texts":"a"}', Everything(texts=["a"])),
        ('{"texts":{"x":1}}', Everything(texts=['{"x":1}'])),
        ('{"where":"LAST"}', Everything(where="LAST")),
        ('{"where":"NOWHERE","number":1}', Everything(number=1)),
        ('{"unknown":{"a":[1]}}', Everything()),
    ],
)
def test_scalars_are_converted_as_javas_setters_do(text: str, expected: Everything) -> None:
    """Numbers, booleans, texts and enums in each other's place are taken as Java takes them."""
    assert read_json_as(text, Everything) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "5",
        "null",
        '{"number":"x"}',
        '{"number":[1]}',
        '{"switch":"maybe"}',
        '{"texts":5}',
        '{"model":7}',
        '{"model":true}',
        '{"model":["CLUSTERING"]}',
        '{"queue":{"topic":"T"}}',
        '{"queue":{"brokerName":"b","queueId":2147483648,"topic":"T"}}',
        '{"queue":{"brokerName":"b","queueId":[1],"topic":"T"}}',
    ],
)
def test_value_of_another_shape_is_refused(text: str) -> None:
    """A value that Java could not assign is a JSON error."""
    with pytest.raises(JsonError, match="is not a Everything"):
        read_json_as(text, Everything)


def test_keys_that_are_no_queues_drop_their_entry() -> None:
    """A table of queues keeps the entries whose key can be read."""
    text = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"x":1}:6,"y":7}}'
    assert read_json_as(text, dict[str, dict[MessageQueue, int]]) == {"offsetTable": {QUEUE: 5}}
