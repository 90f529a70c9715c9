"""The texts of POP, against what Java's ``ExtraInfoUtil`` and ``KeyBuilder`` wrote and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from javastores import java_cases

from rocketlet.common import pop_texts
from rocketlet.common.errors import DecodeError
from rocketlet.common.names import pop_retry_topics
from rocketlet.common.pop_texts import (
    PoppedQueue,
    format_offsets,
    format_order_counts,
    format_start_offsets,
    normal_topic,
    parse_handle,
    parse_offsets,
    parse_order_counts,
    parse_start_offsets,
    read_topic,
    retry_kind,
)

CASES = java_cases("codec/pop.json")
HANDLES = [case for case in CASES if case["op"] == "buildExtraInfo"]
RETRY_TOPICS = [case for case in CASES if case["op"] == "retryTopics"]
[STARTS, OFFSETS, COUNTS] = [
    next(case for case in CASES if case["op"] == op) for op in ("startOffsetInfo", "msgOffsetInfo", "orderCountInfo")
]


@pytest.mark.parametrize("case", [each for each in HANDLES if each["parsed"].get("parts") == 8])
def test_handles_are_java_s(case: dict[str, object]) -> None:
    """Each field is read as Java does, and the text comes out again."""
    handle = parse_handle(str(case["text"]))
    found = {
        "parts": 8,
        "ckQueueOffset": handle.start_offset,
        "popTime": handle.popped_at_ms,
        "invisibleTime": handle.invisible_ms,
        "reviveQid": handle.revive_queue_id,
        "realTopic": read_topic("T", "g", handle.retry),
        "brokerName": handle.broker_name,
        "queueId": handle.queue_id,
        "isOrder": handle.revive_queue_id == 999,
    }
    assert found == case["parsed"]
    assert handle.text() == case["text"]
    assert handle.ends_at_ms == handle.popped_at_ms + handle.invisible_ms
    assert retry_kind(str(case["topicRead"])) == handle.retry


def test_a_ninth_word_is_passed_over() -> None:
    """Clients of gRPC bring the offset in the log."""
    assert parse_handle("7 17 60 3 0 broker-a 0 8 99") == parse_handle("7 17 60 3 0 broker-a 0 8")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 1 words, not 8"),
        ("100 1700000000000 60000 3 0 broker-a 2", "has 7 words, not 8"),
        ("7 1700000000000 60000 0 0 broker with blank 0 7", "queueId of the handle .* is 'with'"),
        ("a 1 2 3 0 b 0 7", "startOffset of the handle .* is 'a', which is no number"),
        ("1  2 3 0 b 0 7", "popTime of the handle .* is ''"),
        ("1 1 2 3 7 b 0 7", "the kind of topic '7'"),
        (f"{2**63} 1 2 3 0 b 0 7", "startOffset"),
    ],
)
def test_what_is_no_handle_is_refused(text: str, reason: str) -> None:
    """The error names the word."""
    with pytest.raises(DecodeError, match=reason):
        parse_handle(text)


def test_answers_are_java_s() -> None:
    """What Java wrote of an answer is read as it reads it."""
    assert {
        f"{retry}@{queue_id}": found for (retry, queue_id), found in parse_start_offsets(STARTS["text"]).items()
    } == (STARTS["parsed"])
    assert {f"{retry}@{queue_id}": found for (retry, queue_id), found in parse_offsets(OFFSETS["text"]).items()} == (
        OFFSETS["parsed"]
    )
    assert {f"{retry}@{name}": found for (retry, name), found in parse_order_counts(COUNTS["text"]).items()} == (
        COUNTS["parsed"]
    )


def test_answers_are_written_as_by_java() -> None:
    """One entry a queue, in reading order."""
    queues = [
        PoppedQueue("0", 0, 10, [10, 11, 15]),
        PoppedQueue("0", 3, 20, [20, 21, 25]),
        PoppedQueue("1", 0, 5, [5, 6, 10]),
        PoppedQueue("2", 1, 6, [6, 7, 11]),
    ]
    assert format_start_offsets(queues) == STARTS["text"]
    assert format_offsets(queues) == OFFSETS["text"]
    assert (format_start_offsets([]), format_offsets([])) == ("", "")
    assert parse_offsets("") == {}


def test_order_counts_end_with_the_least() -> None:
    """One that is new brings the queue down to 0, and has no entry of its own."""
    assert format_order_counts("0", 2, {5: 1, 6: 3}) == "0 qo2%5 1;0 qo2%6 3;0 2 1"
    assert format_order_counts("0", 2, {5: 1, 6: 0}) == "0 qo2%5 1;0 2 0"
    assert format_order_counts("0", 2, {5: 0}) == "0 2 0"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 0", "has 2 words, not 3"),
        ("0 0 1 2", "has 4 words, not 3"),
        ("0 0 1;0 0 2", "names 0 0 twice"),
        ("0 x 1", "'x' in '0 x 1' is no number"),
        ("0 0 1;", "has 1 words"),
    ],
)
def test_bad_answers_are_refused(text: str, reason: str) -> None:
    """A second entry of a queue is refused, as by Java."""
    with pytest.raises(DecodeError, match=reason):
        parse_start_offsets(text)


@pytest.mark.parametrize("case", RETRY_TOPICS, ids=lambda case: case["topic"])
def test_retry_topics_are_java_s(case: dict[str, str]) -> None:
    """Both versions, and the topic that they belong to."""
    since_v2, before = pop_retry_topics(case["topic"], "g")
    assert (since_v2, before) == (case["v2"], case["v1"])
    assert normal_topic(case["topic"], "g") == case["normal"]
    assert normal_topic(since_v2, "g") == normal_topic(before, "g") == case["topic"]


ODD_WORD = st.one_of(st.integers(-1, 1 << 64).map(str), st.sampled_from(["", "+7", "1", "b", "٣", "7 ", "0\n", "3"]))
PLAIN = ["100", "1700000000000", "60000", "3", "0", "broker-a", "2", "7"]
WORDS = st.one_of(
    st.lists(ODD_WORD, max_size=10),
    st.tuples(st.integers(0, 8), ODD_WORD).map(lambda one: [*PLAIN[: one[0]], one[1], *PLAIN[one[0] + 1 :]]),
    st.lists(ODD_WORD, max_size=2).map(lambda more: PLAIN + more),
)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "in Python"])
@given(WORDS)
def test_handles_are_read_alike_in_all_ways(compiled: bool, words: list[str]) -> None:
    """The quick ways read what the words say, or leave it to them."""
    text = " ".join(words)
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(pop_texts, "codecs", None)
        pop_texts._parse_kept.cache_clear()  # pyright: ignore[reportPrivateUsage]  # else the first way's is found
        try:
            by_words = pop_texts._parse_words(text)  # pyright: ignore[reportPrivateUsage]  # the reference of the quick
        except DecodeError:
            with pytest.raises(DecodeError):
                parse_handle(text)
        else:
            assert parse_handle(text) == by_words
