"""Typed headers against the fields that official clients and servers sent."""

import pathlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rocketlet.common.errors import HeaderError
from rocketlet.remoting.codec.command import Command, decode_header, encode_fields
from rocketlet.remoting.codec.frames import FrameParser, encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers import client as headers_client
from rocketlet.remoting.headers import message as headers_retry
from rocketlet.remoting.headers import namesrv as headers_namesrv
from rocketlet.remoting.headers import offset as headers_offset
from rocketlet.remoting.headers import pull as headers_pull
from rocketlet.remoting.headers import send as headers_send

ReadFrames = Callable[[str], list[dict[str, Any]]]
Header = type[msgspec.Struct]

REQUESTS: dict[int, Header] = {
    10: headers_send.SendHeader,
    11: headers_pull.PullHeader,
    12: headers_pull.QueryMessageHeader,
    14: headers_offset.ConsumerOffsetHeader,
    15: headers_offset.CommitOffsetHeader,
    17: headers_client.CreateTopicHeader,
    29: headers_offset.SearchOffsetHeader,
    30: headers_offset.MaxOffsetHeader,
    31: headers_offset.QueueHeader,
    32: headers_offset.QueueHeader,
    33: headers_pull.ViewMessageHeader,
    35: headers_client.UnregisterClientHeader,
    36: headers_retry.SendBackHeader,
    38: headers_client.ConsumerGroupHeader,
    40: headers_client.ConsumerGroupHeader,
    223: headers_client.ClientOffsetsHeader,
    343: headers_client.GroupHeader,
    345: headers_client.GroupSubscriptionHeader,
    100: headers_namesrv.PutKvHeader,
    101: headers_namesrv.KvHeader,
    102: headers_namesrv.KvHeader,
    103: headers_namesrv.RegisterBrokerHeader,
    104: headers_namesrv.UnregisterBrokerHeader,
    105: headers_namesrv.RouteHeader,
    205: headers_namesrv.BrokerNameHeader,
    219: headers_namesrv.NamespaceHeader,
    224: headers_namesrv.ClusterHeader,
    310: headers_send.LetterSendHeader,
    320: headers_send.LetterSendHeader,
    327: headers_namesrv.BrokerNameHeader,
    351: headers_client.TopicHeader,
    352: headers_client.GroupHeader,
    361: headers_pull.PullHeader,
    901: headers_namesrv.BrokerGroupHeader,
}
ANSWERS: dict[int, Header] = {
    10: headers_send.SendReply,
    11: headers_pull.PullReply,
    12: headers_pull.QueryMessageReply,
    14: headers_offset.OffsetReply,
    29: headers_offset.OffsetReply,
    30: headers_offset.OffsetReply,
    31: headers_offset.OffsetReply,
    32: headers_offset.StoreTimeReply,
    34: headers_client.HeartbeatReply,
    101: headers_namesrv.KvReply,
    205: headers_namesrv.WipeWriteReply,
    310: headers_send.SendReply,
    320: headers_send.SendReply,
    327: headers_namesrv.AddWriteReply,
    361: headers_pull.PullReply,
}
IGNORED = {"lo", "ns", "nsd", "AccessKey", "Signature", "SecurityToken", "ReqT", "bname", "committed"}
FRAMES = pathlib.Path(__file__).parent.parent / "vectors" / "frames"
SCENARIOS = sorted(path.name.removesuffix(".jsonl.gz") for path in FRAMES.glob("*.jsonl.gz"))
MADE_UP = "errors-5.4.0"  # its requests have fields that no client sends with them


def _commands(read_frames: ReadFrames, scenario: str) -> list[tuple[Command, int]]:
    """Return each command with the code that it asks or answers."""
    asked: dict[tuple[int, str, int], int] = {}
    commands: list[tuple[Command, int]] = []
    for frame in read_frames(scenario):
        [command] = FrameParser().feed(bytes.fromhex(frame["hex"]))
        if command.is_response:
            other_way = "s2c" if frame["dir"] == "c2s" else "c2s"
            commands.append((command, asked[frame["conn"], other_way, command.opaque]))
        else:
            asked[frame["conn"], frame["dir"], command.opaque] = command.code
            commands.append((command, command.code))
    return commands


def _check(command: Command, kind: Header) -> None:
    sent = {name: text for name, text in command.ext.items() if name not in IGNORED}
    ours = {name: text for name, text in encode_fields(decode_header(kind, command)).items() if name not in IGNORED}
    for name in sent.keys() & ours.keys():
        assert ours[name].lower() == sent[name].lower()
    assert sent.keys() - ours.keys() == set()


@pytest.mark.parametrize("scenario", [scenario for scenario in SCENARIOS if scenario != MADE_UP])
def test_recorded_fields_survive_their_struct(scenario: str, read_frames: ReadFrames):
    """Every field that official clients and servers send is in its struct, and comes out of it as it went in."""
    for command, code in _commands(read_frames, scenario):
        kind = (ANSWERS if command.is_response else REQUESTS).get(code)
        if kind is not None and command.ext and not (command.is_response and command.code != 0):
            _check(command, kind)


def test_recordings_show_every_header(read_frames: ReadFrames):
    """The recordings hold every request and answer that has a struct here, so that the test above has seen it."""
    seen = {
        (command.is_response, code)
        for scenario in SCENARIOS
        for command, code in _commands(read_frames, scenario)
        if command.ext
    }
    assert {(False, code) for code in REQUESTS} | {(True, code) for code in ANSWERS} <= seen


LETTERS = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "3"}
LONG = {
    "producerGroup": "pg",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "3",
}


@pytest.mark.parametrize("code", [10, 310, 320, 324, 325])
@pytest.mark.parametrize("fields", [LETTERS, LONG], ids=["letters", "long"])
def test_send_header_is_taken_in_either_spelling(code: int, fields: dict[str, str]):
    """Any send code may name its fields by letters or in full, and gives the same header."""
    header = headers_send.decode_send_header(Command.request(code, fields))
    assert (header.producer_group, header.topic, header.queue_id, header.flag) == ("pg", "T", 1, 3)
    assert (header.properties, header.reconsume_times, header.batch) == (None, None, None)


@pytest.mark.parametrize(
    ("code", "fields", "name"),
    [
        (310, {}, "b"),
        (10, {}, "topic"),
        (310, {name: text for name, text in LETTERS.items() if name != "e"}, "e"),
        (10, LONG | {"queueId": ""}, "queueId"),
        (10, {name: text for name, text in LONG.items() if name != "queueId"}, "queueId"),
        (310, {name: text for name, text in LONG.items() if name != "queueId"}, "queueId"),
        (10, {name: text for name, text in LETTERS.items() if name != "e"}, "e"),
    ],
)
def test_missing_send_field_is_named_as_it_is_spelt(code: int, fields: dict[str, str], name: str):
    """A missing field of a send is named in the spelling that the sender used, or else that of the code."""
    with pytest.raises(HeaderError, match=f"^the custom field <{name}> is null$"):
        headers_send.decode_send_header(Command.request(code, fields))


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [(10, "1", False), (310, "1", False), (10, "TRUE", True), (310, "true", True), (310, "false", False)],
)
def test_batch_is_what_says_so(code: int, text: str, expected: bool):
    """A body is read as a batch for the word ``true`` alone, as by Java's parseBoolean."""
    fields = LONG | {"batch": text} if code == 10 else LETTERS | {"m": text}
    received = FrameParser().feed(encode_command(Command.request(code, fields)))[0]
    assert headers_send.decode_send_header(received).batch is expected


HEADER_MODULES = (headers_client, headers_retry, headers_namesrv, headers_offset, headers_pull, headers_send)
LEFT_OUT: dict[str, dict[str, object]] = {
    "UnregisterClientHeader": {"client_id": ""},
    "CreateTopicHeader": {"default_topic": "", "topic_filter_type": "null", "order": False},
    "BrokerProgressHeader": {"is_order": False},
    "DeletedTopicHeader": {"topic": ""},
    "DeleteGroupHeader": {"clean_offset": False, "remove_offset": False},
    "AskedMemberHeader": {"client_id": "null"},
    "AskedConsumptionHeader": {"client_id": "null", "message_id": "null"},
    "RunningInfoHeader": {"with_stacks": False},
    "RecallHeader": {"recall_handle": ""},
    "ReplyPushHeader": {"unit_mode": False},
    "RegisterBrokerHeader": {"compressed": False, "body_crc32": 0},
    "UnregisterBrokerHeader": {"broker_name": "null", "broker_addr": "null", "cluster_name": "null", "broker_id": 0},
    "BrokerHeader": {"broker_name": "null", "broker_id": 0},
    "BrokerHeartbeatHeader": {"broker_name": "null"},
    "RouteHeader": {"topic": "null"},
    "BrokerGroupHeader": {"cluster_name": "null", "broker_name": "null"},
    "DeleteTopicHeader": {"topic": "null"},
    "NamespaceHeader": {"namespace": "null"},
    "KvHeader": {"namespace": "null", "key": "null"},
    "ClusterHeader": {"cluster": "null"},
    "BrokerNameHeader": {"broker_name": "null"},
    "MaxOffsetHeader": {"committed": True},
    "ConsumerOffsetHeader": {"consumer_group": "null"},
    "CommitOffsetHeader": {"consumer_group": "null"},
    "ResetOffsetHeader": {"group": "null", "at_ms": 0, "is_forced": True, "queue_id": -1},
    "PullHeader": {"commit_offset": 0, "suspend_ms": 0, "sub_version": 0},
    "PullReply": {"suggest_which_broker_id": 0},
    "QueryMessageHeader": {"topic": "null", "key": "null"},
    "SendHeader": {"producer_group": "", "default_topic": "", "default_topic_queue_nums": 0},
    "LetterSendHeader": {"producer_group": "", "default_topic": "", "default_topic_queue_nums": 0},
}


def test_field_that_is_left_out_is_read_as_by_java():
    """A field that a client leaves out is unset, and not sent on, but for those that Java's reader fills."""
    filled: dict[str, dict[str, object]] = {}
    for module in HEADER_MODULES:
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not Command:
                optional = [each for each in msgspec.structs.fields(kind) if not each.required]
                filled[name] = {each.name: each.default for each in optional if each.default is not None}
    assert {name: fields for name, fields in filled.items() if fields} == LEFT_OUT


def test_letter_header_is_written_in_letters():
    """What our own producer sends with 310 is what Java's sends."""
    header = headers_send.LetterSendHeader(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_at_ms=1_700_000_000_000,
        flag=3,
        unit_mode=False,
    )
    assert Command.request(RequestCode.SEND_MESSAGE_V2, header).ext == LETTERS | {"k": "false"}
