import pytest
from javastores import Read
from logbuilder import FIRST_MS, LogBuilder

from rocketlet.common.errors import ConfigError
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.export.plan.selection import Reason, Selection, parse_instant
from rocketlet.export.write.log_reader import ReadOptions

TOPICS = ["A", "B", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%g", "%DLQ%g"]


@pytest.fixture
def mixed(log: LogBuilder) -> LogBuilder:
    """Return a log with a message of each topic, one millisecond apart, and two that are in no queue."""
    for topic in TOPICS:
        log.add(topic.encode(), topic=topic, properties={"TAGS": topic, "KEYS": f"key {topic}"})
    log.add(b"half", topic="A", sys_flag=0x4, queue_offset=0)
    log.add(b"rolled back", topic="A", sys_flag=0xC, queue_offset=0)
    log.add(b"committed", topic="A", sys_flag=0x8)
    log.save()
    return log


@pytest.mark.parametrize(
    ("selection", "bodies", "left_out"),
    [
        (
            Selection(),
            ["A", "B", "committed"],
            {"SYSTEM_TOPIC": 2, "RETRY_TOPIC": 1, "DEAD_LETTER_TOPIC": 1, "NOT_QUEUED": 2},
        ),
        (Selection(includes_system=True), [*TOPICS, "committed"], {"NOT_QUEUED": 2}),
        (Selection(topics=frozenset({"B", "%DLQ%g"})), ["B", "%DLQ%g"], {"TOPIC": 5, "NOT_QUEUED": 2}),
        (
            Selection(from_ms=FIRST_MS + 1, until_ms=FIRST_MS + 3, includes_system=True),
            ["B", "SCHEDULE_TOPIC_XXXX"],
            {"TIME": 5, "NOT_QUEUED": 2},
        ),
        (Selection(from_ms=FIRST_MS + 8), ["committed"], {"TIME": 2}),
        (Selection(until_ms=FIRST_MS), [], {"TIME": 3}),
        (Selection(tags=frozenset({"A", "%DLQ%g"})), ["A"], {"TAG": 2}),
        (Selection(keys=frozenset({"A", "B"})), ["A", "B"], {"KEY": 1}),
        (Selection(keys=frozenset({"key"}), tags=frozenset({"B"})), ["B"], {"TAG": 2}),
        (Selection(keys=frozenset({"B"}), tags=frozenset({"A"})), [], {"TAG": 2, "KEY": 1}),
    ],
)
def test_messages_are_rows_or_left_out_for_one_reason(
    mixed: LogBuilder, read: Read, selection: Selection, bodies: list[str], left_out: dict[str, int]
) -> None:
    """Each message is a row, or counted for the first reason that fits; the sum is always the log."""
    rows, report = read(mixed.root, options=ReadOptions(selection))
    assert [row["body"].decode() for row in rows] == bodies
    found = {reason.name: count for reason, count in report.stores[0].left_out.items()}
    assert found.items() >= left_out.items()
    assert len(rows) + sum(found.values()) == 9 == report.stores[0].messages
    assert not report.faults()


def test_reasons_have_labels_of_their_own() -> None:
    """Reports name each reason differently."""
    assert len({reason.label for reason in Reason}) == len(Reason)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        (" -5 ", -5),
        ("1970-01-01", 0),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-15T00:13:20.123+02:00", 1_700_000_000_123),
    ],
)
def test_instants_are_read(text: str, at_ms: int) -> None:
    """Milliseconds and ISO 8601 name the same instant; without a zone it is UTC."""
    assert parse_instant(text, "--from") == at_ms


def test_seconds_are_noticed() -> None:
    """Seconds of our time are days of 1970 as milliseconds, which nobody means; small numbers are what they are."""
    with pytest.raises(ConfigError, match="--from is 1700000000, as epoch milliseconds 1970-01-20"):
        parse_instant("1700000000", "--from")
    assert parse_instant("99999999", "--from") == 99_999_999


@pytest.mark.parametrize("text", ["", "now", "2023-13-01", "17.5", "12x"])
def test_other_texts_are_refused(text: str) -> None:
    """What is neither is an error that names the option."""
    with pytest.raises(ConfigError, match="--from"):
        parse_instant(text, "--from")


@pytest.mark.parametrize(
    ("at_ms", "is_refused"),
    [(99_999_999, False), (100_000_000, True), (99_999_999_999, True), (100_000_000_000, False)],
)
def test_seconds_are_those_from_1973_to_5138(at_ms: int, is_refused: bool) -> None:
    """The message says what was meant."""
    if is_refused:
        with pytest.raises(ConfigError, match=f"of seconds it would be {at_ms}000") as caught:
            parse_instant(str(at_ms), "--from")
        assert caught.value.key == "--from"
    else:
        assert parse_instant(str(at_ms), "--from") == at_ms


BATCH = encode_batch(BatchPart(0, b"%d" % number, b"KEYS\x01k%d\x02" % number) for number in range(4))


@pytest.mark.parametrize(
    ("selection", "rows", "left_out"),
    [
        (Selection(), [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3)], {}),
        (Selection(from_offset=1), [(0, 1), (2, 1), (2, 2), (2, 3)], {Reason.OFFSET: 3}),
        (Selection(until_offset=1), [(0, 0), (1, 0), (2, 0)], {Reason.OFFSET: 4}),
        (Selection(from_offset=1, until_offset=3), [(0, 1), (2, 1), (2, 2)], {Reason.OFFSET: 4}),
        (Selection(queue_ids=frozenset({1, 2})), [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3)], {Reason.QUEUE: 2}),
        (Selection(queue_ids=frozenset({0}), from_offset=1), [(0, 1)], {Reason.QUEUE: 5, Reason.OFFSET: 1}),
        (Selection(keys=frozenset({"k1", "k3"})), [(2, 1), (2, 3)], {Reason.KEY: 5}),
        (Selection(keys=frozenset({"k1", "k3"}), from_offset=2), [(2, 3)], {Reason.KEY: 1, Reason.OFFSET: 5}),
        (Selection(from_ms=FIRST_MS + 1, until_ms=FIRST_MS + 3), [(0, 1), (1, 0)], {Reason.TIME: 5}),
        (Selection(queue_ids=frozenset({2}), until_ms=FIRST_MS + 3), [], {Reason.QUEUE: 3, Reason.TIME: 4}),
    ],
)
def test_messages_of_batches_are_judged_one_by_one(
    log: LogBuilder, read: Read, selection: Selection, rows: list[tuple[int, int]], left_out: dict[Reason, int]
) -> None:
    """By their own offsets and keys; queue and time are those of the record."""
    for queue_id in (0, 0, 1):
        log.add(queue_id=queue_id)
    log.add(BATCH, queue_id=2, sys_flag=0xC0, queue_offset=0)
    log.save()
    found, report = read(log.root, options=ReadOptions(selection))
    assert [(row["queueId"], row["queueOffset"]) for row in found] == rows
    assert report.stores[0].left_out == left_out
    assert not report.faults()


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(), {"A"}),
        (Selection(includes_system=True), {"A", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX"}),
        (Selection(topics=frozenset({"%RETRY%g"})), {"%RETRY%g"}),
        (Selection(among=frozenset({"A", "%DLQ%g"})), {"A"}),
        (Selection(among=frozenset({"A", "%DLQ%g"}), includes_system=True), {"A", "%DLQ%g"}),
        (Selection(topics=frozenset({"A", "%DLQ%g"}), among=frozenset({"%DLQ%g"})), {"%DLQ%g"}),
        (Selection(among=frozenset()), set[str]()),
    ],
)
def test_topics_that_may_be_wanted(selection: Selection, wanted: set[str]) -> None:
    """Naming a topic asks for it, narrowing to it does not."""
    topics = ("A", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX")
    assert {topic for topic in topics if selection.wants_topic(topic)} == wanted
