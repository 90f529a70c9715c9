"""What becomes of an open half message when a round comes by."""

import pytest
from stores import HOST

from rocketlet.broker.transaction.checks import CheckRules, CheckVerdict, check_times, is_too_late, judge
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord, Record, decode_record, encode_record

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RULES = CheckRules(timeout_ms=6_000, most_checks=15, reserved_ms=72 * HOUR_MS)
IMMUNE, TIMES = "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES"


def half(age_ms: int, properties: dict[str, str] | None = None, stored_ms_ago: int = 1) -> Record:
    """Return a half message of an age."""
    properties = properties or {}
    new = NewRecord("H", 0, b"x", encode_properties(properties), properties, 0, 0, NOW_MS - age_ms, HOST)
    return decode_record(encode_record(new, 0, 0, NOW_MS - stored_ms_ago, HOST))


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (half(6_000), CheckVerdict.STOP),
        (half(6_001), CheckVerdict.ASK),
        (half(0), CheckVerdict.STOP),
        (half(-1), CheckVerdict.ASK),
        (half(60_000, stored_ms_ago=0), CheckVerdict.STOP),
        (half(60_000, {TIMES: "14"}), CheckVerdict.ASK),
        (half(60_000, {TIMES: "15"}), CheckVerdict.GIVE_UP),
        (half(60_000, {TIMES: "16"}, stored_ms_ago=0), CheckVerdict.GIVE_UP),
        (half(60_000, {TIMES: "many"}), CheckVerdict.ASK),
        (half(72 * HOUR_MS), CheckVerdict.ASK),
        (half(72 * HOUR_MS + 1), CheckVerdict.GIVE_UP),
    ],
    ids=[
        "at the time-out",
        "above it",
        "new",
        "born in the future",
        "stored in this round",
        "asked 14 times",
        "asked 15 times",
        "asked too often and just stored",
        "asked nobody knows how often",
        "as old as files get",
        "older",
    ],
)
def test_verdicts(message: Record, verdict: CheckVerdict) -> None:
    """Each row of the table, at its limit."""
    assert judge(message, RULES, NOW_MS, NOW_MS) is verdict


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    ("seconds", "until_ms"), [("10", 10_000), ("1", 1_000), ("0", 0), ("-1", 6_000), ("-2", -2_000), ("soon", 6_000)]
)
def test_immunity_of_its_own(seconds: str, until_ms: int) -> None:
    """Within it a message is spared; behind it, it is asked about; -1 and what is no number mean the time-out."""
    for age_ms, verdict in ((until_ms, CheckVerdict.SPARE), (until_ms + 1, CheckVerdict.ASK)):
        assert judge(half(age_ms, {IMMUNE: seconds}), RULES, NOW_MS, NOW_MS) is verdict


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    ("seconds", "until_ms"), [("10", 10_000), ("1", 6_000), ("-1", 6_000), ("soon", 6_000), (None, 10**12)]
)
def test_too_late_to_decide(seconds: str | None, until_ms: int) -> None:
    """A producer may decide until its immunity is over, at least until the time-out; without one, at any time."""
    properties = {} if seconds is None else {IMMUNE: seconds}
    assert not is_too_late(half(until_ms, properties), RULES, NOW_MS)
    assert is_too_late(half(until_ms + 1, properties), RULES, NOW_MS) is (seconds is not None)


def test_first_check_counts_from_nothing() -> None:
    """A message that nobody was asked about has been checked no time."""
    assert (check_times({}), check_times({TIMES: "3"}), check_times({TIMES: "x"})) == (0, 3, -1)
