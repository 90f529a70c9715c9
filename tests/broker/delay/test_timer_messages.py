"""Timer messages on their way into the wheel and out of it, as values."""

import random
from collections.abc import Iterator

import msgspec
import pytest
from stores import HOST, new_record

from rocketlet.broker.delay.timer_messages import (
    TimerRequests,
    deletion_keys,
    delivered,
    recall_handle_of,
    rolled,
    timed,
)
from rocketlet.common.errors import MessageRefusedError
from rocketlet.common.ids import parse_recall_handle
from rocketlet.common.message import COMPRESSED
from rocketlet.common.names import TIMER_TOPIC
from rocketlet.common.properties import CRC32, MAX_PROPERTIES_BYTES, encode_properties, java_hash, parse_properties
from rocketlet.common.record import NewRecord, Record, decode_record, encode_record
from rocketlet.store.files.store_config import TimerConfig

NEVER_PUT_MS = 2**63 - 1

NOW_MS = 1_700_000_000_500
DAY_S = 86_400
PLACE = {"REAL_TOPIC": "T", "REAL_QID": "5", "UNIQ_KEY": "K"}


def requests(count: int = 0, *, most_in_slot: int = 2**31 - 1) -> TimerRequests:
    """Return who parks messages up to a day ahead, while each slot holds so many."""
    return TimerRequests(TimerConfig(most_delay_seconds=DAY_S, most_in_slot=most_in_slot), lambda _: count, lambda _: 0)


def out_ms(properties: dict[str, str], wanted: TimerRequests | None = None) -> int | None:
    """Return from when on a message waits for its slot, None if it is not parked."""
    parked = (wanted or requests()).rewrite(new_record("T", 5, b"body", **properties), NOW_MS)
    return None if parked is None else int(parked.properties["TIMER_OUT_MS"])


def stored(topic: str = TIMER_TOPIC, **properties: str) -> Record:
    """Return a record as it is read back."""
    new = new_record(topic, 0, b"body", **properties)
    new.reconsume_times, new.flag, new.sys_flag, new.born_at_ms = 3, 7, COMPRESSED, 11
    return decode_record(encode_record(new, 4, 100, 12, HOST))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "2"}, NOW_MS + 1_500),
        ({"TIMER_DELAY_MS": "2000"}, NOW_MS + 1_500),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 2_000)}, NOW_MS + 1_500),
        ({"TIMER_DELAY_MS": "1500"}, NOW_MS + 500),
        ({"TIMER_DELAY_MS": "1501"}, NOW_MS + 1_500),
        ({"TIMER_DELAY_MS": "1"}, NOW_MS - 500),
        ({"TIMER_DELAY_MS": "+2000"}, NOW_MS + 1_500),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "9000", "TIMER_DELIVER_MS": "x"}, NOW_MS + 500),
        ({"TIMER_DELAY_MS": "1000", "TIMER_DELIVER_MS": "x"}, NOW_MS + 500),
        ({"TIMER_DELAY_MS": "0"}, None),
        ({"TIMER_DELAY_SEC": "-1"}, None),
        ({"TIMER_DELIVER_MS": str(NOW_MS)}, None),
        ({"TIMER_DELIVER_MS": str(-(2**63))}, None),
        ({"TIMER_DELAY_MS": str(2**63 - 1)}, None),
        ({"TIMER_DELAY_SEC": str(2**63 - 1)}, None),
        ({"TIMER_DELAY_SEC": str(-(2**63) // 1_000), "TIMER_OUT_MS": "5"}, None),
        ({"TIMER_DELAY_SEC": str(2**64 // 1_000 + 1)}, NOW_MS - 500),
        ({"TIMER_DELAY_SEC": str(DAY_S)}, NOW_MS + DAY_S * 1_000 - 500),
        ({"TIMER_DELAY_MS": "2000", "TIMER_DEL_UNIQKEY": "K"}, NOW_MS + 1_500),
    ],
)
def test_time_that_a_message_asks_for(properties: dict[str, str], expected: int | None) -> None:
    """It is floored to its slot, an exact second to the one before; what has passed is none; sums have 64 bits."""
    assert out_ms(properties) == expected


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_MS": "soon"},
        {"TIMER_DELAY_MS": ""},
        {"TIMER_DELIVER_MS": str(2**63 - 1)},
        {"TIMER_DELAY_MS": str(2**63)},
        {"TIMER_DELIVER_MS": str(-(2**63) - 1)},
        {"TIMER_DELAY_MS": "9" * 5_000},
        {"TIMER_DELAY_MS": str(DAY_S * 1_000 + 1)},
        {"TIMER_DELAY_MS": "0", "TIMER_DEL_UNIQKEY": "K"},
    ],
)
def test_time_that_cannot_be(properties: dict[str, str]) -> None:
    """No number of 64 bits, too far ahead, or over for one that deletes: Java's code, status and words."""
    with pytest.raises(MessageRefusedError, match=f"bigger than the max delay {DAY_S}000ms; or") as caught:
        out_ms(properties)
    assert (caught.value.code, caught.value.status) == (13, "WHEEL_TIMER_MSG_ILLEGAL")


def test_message_of_the_wheel_asks_for_nothing() -> None:
    """One that is bound for the timer topic itself, or has been through the wheel, stays what it is."""
    new = new_record(TIMER_TOPIC, 0, TIMER_DELAY_SEC="2")
    assert requests().rewrite(new, NOW_MS) is None
    assert out_ms({"TIMER_DELAY_SEC": "2", "TIMER_OUT_MS": "1"}) is None


def test_message_waits_in_the_timer_topic() -> None:
    """It says where it belongs, and keeps what its sender asked for."""
    new = new_record("T", 5, TIMER_DELAY_SEC="2", UNIQ_KEY="K")
    parked = requests().rewrite(new, NOW_MS)
    assert parked is not None
    assert (parked.topic, parked.queue_id, parked.body) == (TIMER_TOPIC, 0, new.body)
    assert parked.properties == {**PLACE, "TIMER_DELAY_SEC": "2", "TIMER_OUT_MS": str(NOW_MS + 1_500)}


def test_wheel_that_is_ahead_of_the_clock() -> None:
    """After a clock was set back, slots go by the time that has passed since."""
    ahead = TimerRequests(TimerConfig(), lambda _: 0, lambda wall_ms: wall_ms - NOW_MS + 7_000)
    assert (ahead.ahead_ms(NOW_MS + 1), requests().ahead_ms(NOW_MS)) == (7_001, 0)
    assert out_ms({"TIMER_DELAY_MS": "2000"}, ahead) == NOW_MS + 8_500


@pytest.fixture
def _chance() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] # by name
    """Draw the same numbers in each run."""
    state = random.getstate()
    random.seed(1)
    yield
    random.setstate(state)


@pytest.mark.usefixtures("_chance")
@pytest.mark.parametrize(
    ("count", "most", "share"),
    [(0, 2, 0.0), (2, 2, 0.0), (3, 2, 1 - 1 / 2.1), (4, 2, 1.0), (5, 2, 1.0), (150, 100, 0.5), (1, 0, 1.0)],
)
def test_slot_that_is_crowded(count: int, most: int, share: float) -> None:
    """Up to the limit none is refused, at twice as many all, and some between, fewer the more there are, as in Java."""
    wanted = requests(count, most_in_slot=most)
    refusals: list[MessageRefusedError] = []
    for _ in range(4_000):
        try:
            out_ms({"TIMER_DELAY_SEC": "2"}, wanted)
        except MessageRefusedError as error:
            refusals.append(error)
    assert {(error.code, error.status) for error in refusals} <= {(1, "WHEEL_TIMER_FLOW_CONTROL")}
    assert all(f"max num limit is {2 * most} or" in (error.remark or "") for error in refusals)
    assert len(refusals) / 4_000 == pytest.approx(share, abs=0.0 if share in (0.0, 1.0) else 0.025)


def test_slots_have_no_limit_unless_one_is_set() -> None:
    """Nobody counts then; any lower number is a limit."""
    assert out_ms({"TIMER_DELAY_SEC": "2"}, requests(2**40)) is not None
    with pytest.raises(MessageRefusedError):
        out_ms({"TIMER_DELAY_SEC": "2"}, requests(2**40, most_in_slot=2**31 - 2))


@pytest.mark.parametrize("text", [None, "", "soon", "-5", "1.5", str(2**63 - 1), str(2**70)])
def test_record_without_a_time(text: str | None) -> None:
    """What is no number, or no instant that the wheel can hold, is no timer message."""
    assert timed(stored(**PLACE, **({} if text is None else {"TIMER_OUT_MS": text}))) is None


def test_record_with_a_time() -> None:
    """It is known by its place in the log, its topic's hash, and whether it deletes; other topics hold none."""
    properties = {**PLACE, "TIMER_OUT_MS": str(2**63 - 2)}
    record = stored(**properties)
    assert timed(record) == (2**63 - 2, 100, record.total_size, java_hash("T"), False)
    deleting = timed(stored(**properties, TIMER_DEL_UNIQKEY="K"))
    assert deleting is not None
    assert deleting.is_deleting
    assert timed(stored("T", **properties)) is None


def test_delivered_message_says_when() -> None:
    """It keeps all, and tells when it came into the wheel and out of it; a checksum does not fit any more."""
    record = stored(**PLACE, TIMER_OUT_MS="5", **{CRC32: "1"})
    new = delivered(record, 8, 9)
    assert (new.topic, new.queue_id, new.body, new.flag, new.reconsume_times) == ("T", 5, b"body", 7, 3)
    assert new.properties == {**PLACE, "TIMER_OUT_MS": "5", "TIMER_ENQUEUE_MS": "8", "TIMER_DEQUEUE_MS": "9"}
    assert parse_properties(new.property_text) == new.properties


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("1", "2"), ("41", "42"), ("x", "1"), ("-3", "1")])
def test_rolled_message_counts_its_rounds(before: str | None, after: str) -> None:
    """It waits in the timer topic again, with all that it was; a number that is none is the first."""
    properties = PLACE if before is None else {**PLACE, "TIMER_ROLL_TIMES": before}
    record = stored(**properties)
    new = rolled(record, 8, 9)
    assert (new.topic, new.queue_id, new.body) == (TIMER_TOPIC, 0, b"body")
    assert (new.flag, new.sys_flag, new.born_at_ms, new.born_host) == (7, COMPRESSED, 11, record.born_host)
    assert new.reconsume_times == 3
    assert new.properties == {**PLACE, "TIMER_ROLL_TIMES": after, "TIMER_ENQUEUE_MS": "8", "TIMER_DEQUEUE_MS": "9"}


def test_room_for_what_is_added() -> None:
    """64 bytes are left to who stores it; a message that has no room for the times goes without."""
    added = len(encode_properties({"TIMER_ENQUEUE_MS": str(NEVER_PUT_MS), "TIMER_DEQUEUE_MS": str(NOW_MS)}))
    room = MAX_PROPERTIES_BYTES - 64 - added - len(encode_properties({**PLACE, "p": ""}))
    fits, full = (stored(**PLACE, p="x" * size) for size in (room, room + 1))
    new = delivered(fits, NEVER_PUT_MS, NOW_MS)
    assert len(new.property_text) == MAX_PROPERTIES_BYTES - 64
    assert delivered(full, NEVER_PUT_MS, NOW_MS).property_text == full.property_text


def test_keys_by_which_a_message_is_deleted() -> None:
    """Its unique key, alone and behind its topic; without one nobody can delete it."""
    assert deletion_keys(stored(**PLACE)) == ("K", "T+K")
    assert deletion_keys(stored(REAL_TOPIC="T")) == ()


def parked(topic: str = "T", **properties: str) -> NewRecord:
    """Return a message as it waits."""
    new = new_record(TIMER_TOPIC, 0, b"body", REAL_TOPIC=topic, **properties)
    return msgspec.structs.replace(new, topic=TIMER_TOPIC)


def test_handle_of_a_parked_message() -> None:
    """It names topic, broker, unique key and the instant behind its slot; what is missing, or a retry, has none."""
    text = recall_handle_of(parked(TIMER_OUT_MS="41", UNIQ_KEY="K"), "b")
    assert text is not None
    assert parse_recall_handle(text) == ("T", "b", "42", "K")
    assert recall_handle_of(parked(UNIQ_KEY="K"), "b") is None
    assert recall_handle_of(parked(TIMER_OUT_MS="41"), "b") is None
    assert recall_handle_of(parked("%RETRY%g", TIMER_OUT_MS="41", UNIQ_KEY="K"), "b") is None
    assert recall_handle_of(new_record(TIMER_TOPIC, 0, TIMER_OUT_MS="41", UNIQ_KEY="K"), "b") is None
