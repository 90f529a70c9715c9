"""The messages of gRPC are those of a real proxy, and their types those of the table."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from grpc_recordings import VECTORS, load_exchanges
from grpc_stub import PATH, write_stub

from rocketlet.proxy.messages import schema, v2


def recorded(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the class and the JSON of each recorded message, with its bytes."""
    for exchange in load_exchanges(name):
        method = exchange.get("method")
        if method is None:
            continue
        for event in exchange.get("events", ()):
            if "hex" in event:
                yield "TelemetryCommand", event
        if "request" in exchange and "requestHex" in exchange:
            yield f"{method}Request", {"json": exchange["request"], "hex": exchange["requestHex"]}
        for answer in exchange.get("responses", ()):
            yield f"{method}Response", answer


@pytest.mark.parametrize("name", sorted(path.stem for path in VECTORS.glob("*.json")))
def test_recorded_messages_are_read_and_written(name: str) -> None:
    """Each message that a proxy of 5.4.0 and its client have exchanged says the same here, and is written alike."""
    count = 0
    for kind, message in recorded(name):
        if not isinstance(message["json"], dict) or "garbage" in message:
            continue
        data = bytes.fromhex(message["hex"])
        made: type[Message] = getattr(v2, kind)
        read = made.FromString(data)
        assert json_format.MessageToDict(read, preserving_proto_field_name=True) == message["json"]
        assert made.FromString(read.SerializeToString()) == read
        count += 1
    assert count


def test_stub_tells_the_table() -> None:
    """The types that pyright sees are written from the table; run tests/support/grpc_stub.py when it has changed."""
    assert PATH.read_text() == write_stub()


def test_unknown_fields_and_numbers_are_kept() -> None:
    """A field and a number of a later release survive being read and written."""
    data = v2.Resource(name="t").SerializeToString() + b"\xfa\x06\x03new"
    assert v2.Resource.FromString(data).SerializeToString() == data
    assert v2.UA.FromString(b"\x08\x63").language == 0x63


def test_messages_are_compiled() -> None:
    """The protobuf of the registry reads messages by compiled code."""
    assert schema.is_fast()


def test_table_has_each_number_once() -> None:
    """No message has a number or a name twice."""
    for name, fields in schema.parse_table().items():
        assert len({field.number for field in fields}) == len(fields) == len({field.name for field in fields}), name
