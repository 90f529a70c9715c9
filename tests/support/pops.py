"""Requests of POP to a broker, and what its answers say."""

from typing import Any, NamedTuple

from raw_calls import Caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.pop_texts import PopHandle, parse_offsets, parse_start_offsets, read_topic
from rocketlet.common.record import Record, iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

GROUP = "g"
MINUTE_MS = 60_000


class PoppedMessage(NamedTuple):
    """A message that was handed out, and its handle."""

    record: Record
    handle: PopHandle

    @property
    def body(self) -> bytes:
        """The body."""
        return bytes(self.record.body)


def pop_fields(topic: str = "T", **fields: Any) -> dict[str, str]:
    """Return the fields of a request, those of the Java client unless told otherwise."""
    usual = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": MINUTE_MS,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": False,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (usual | fields).items()
    }


async def ask_pop(caller: Caller, topic: str = "T", **fields: Any) -> Command:
    """Ask for messages and return the answer."""
    return await caller.ask(RequestCode.POP_MESSAGE, pop_fields(topic, **fields))


async def pop(caller: Caller, topic: str = "T", **fields: Any) -> list[PoppedMessage]:
    """Return what is handed out."""
    return read_popped(await ask_pop(caller, topic, **fields), "broker-a")


def read_popped(answer: Command, broker_name: str) -> list[PoppedMessage]:
    """Return the messages of an answer with their handles, as the Java client works them out."""
    if answer.code == ResponseCode.POLLING_TIMEOUT:
        assert not answer.body
        return []
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    starts, offsets = parse_start_offsets(answer.ext["startOffsetInfo"]), parse_offsets(answer.ext["msgOffsetInfo"])
    places = [(kind, queue_id, offset) for (kind, queue_id), found in offsets.items() for offset in found]
    lease = [int(answer.ext[name]) for name in ("popTime", "invisibleTime", "reviveQid")]
    found: list[PoppedMessage] = []
    for record, (kind, queue_id, offset) in zip(iter_records(answer.body), places, strict=True):
        assert (record.queue_id, record.queue_offset) == (queue_id, offset)
        handle = PopHandle(starts[kind, queue_id], lease[0], lease[1], lease[2], kind, broker_name, queue_id, offset)
        assert record.properties.get("POP_CK", handle.text()) == handle.text()
        found.append(PoppedMessage(record, handle))
    return found


def ack_fields(message: PoppedMessage, topic: str = "T", group: str = GROUP) -> dict[str, str]:
    """Return the fields of an acknowledgement."""
    handle = message.handle
    return {
        "consumerGroup": group,
        "topic": read_topic(topic, group, handle.retry),
        "queueId": str(handle.queue_id),
        "extraInfo": handle.text(),
        "offset": str(handle.queue_offset),
    }


async def acknowledge(caller: Caller, *messages: PoppedMessage, topic: str = "T", group: str = GROUP) -> None:
    """Be done with messages."""
    for message in messages:
        answer = await caller.ask(RequestCode.ACK_MESSAGE, ack_fields(message, topic, group))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)


async def change(caller: Caller, message: PoppedMessage, invisible_ms: int, topic: str = "T") -> PoppedMessage:
    """Give a message another lease; return it with its new handle."""
    fields = {**ack_fields(message, topic), "invisibleTime": str(invisible_ms)}
    answer = await caller.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    handle = message.handle._replace(
        start_offset=message.handle.queue_offset,
        popped_at_ms=int(answer.ext["popTime"]),
        invisible_ms=int(answer.ext["invisibleTime"]),
        revive_queue_id=int(answer.ext["reviveQid"]),
    )
    return message._replace(handle=handle)
