"""Where messages wait that are not to be seen yet."""

import msgspec
import pytest
from stores import new_record

from rocketlet.broker.delay.delayed_messages import DelayRouting, Delays
from rocketlet.common.errors import DecodeError, MessageRefusedError
from rocketlet.common.message import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.record import NewRecord

LEVELS = Delays((1_000, 5_000))
NOW_MS = 1_000_000


class Timers:
    """Timers that park what asks for a second or more, and refuse what asks for a day."""

    def ahead_ms(self, wall_ms: int) -> int:
        """Go by the wall clock, which nobody sets."""
        return 0 * wall_ms

    def rewrite(self, new: NewRecord, now_ms: int) -> NewRecord | None:
        """Park in a topic of their own."""
        text = new.properties.get("TIMER_DELAY_SEC")
        if text is None or int(text) <= 0:
            return None
        if int(text) >= 86_400:
            raise MessageRefusedError(13, "too long", status="WHEEL_TIMER_MSG_ILLEGAL")
        return msgspec.structs.replace(new, topic=f"until {now_ms + 1000 * int(text)}")


def now_ms() -> int:
    """Stand still."""
    return NOW_MS


def placed_topic(routing: DelayRouting, properties: dict[str, str], sys_flag: int = 0) -> str:
    """Return the topic that a message to T is stored in."""
    new = msgspec.structs.replace(new_record("T", 0, b"x", **properties), sys_flag=sys_flag)
    return routing.place(new).topic


@pytest.mark.parametrize("timers", [None, Timers()])
def test_delay_level_beats_a_timer(timers: Timers | None) -> None:
    """A message with both goes to its level, with or without a timer wheel; level 0 is no delay."""
    routing = DelayRouting(now_ms, LEVELS, timers)
    assert placed_topic(routing, {"DELAY": "1", "TIMER_DELAY_SEC": "7"}) == SCHEDULE_TOPIC
    assert placed_topic(routing, {"DELAY": "0"}) == "T"


def test_timers_park_and_refuse() -> None:
    """What asks for a timer goes where the timers say, a time that has passed leaves it as it is."""
    routing = DelayRouting(now_ms, LEVELS, Timers())
    assert placed_topic(routing, {"TIMER_DELAY_SEC": "7"}) == "until 1007000"
    assert placed_topic(routing, {"TIMER_DELAY_SEC": "0"}) == "T"
    with pytest.raises(MessageRefusedError, match="too long"):
        placed_topic(routing, {"TIMER_DELAY_SEC": "86400"})


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_without_a_wheel_timers_are_refused(name: str) -> None:
    """The answer is Java's; a message that has had its timer already is an ordinary one."""
    routing = DelayRouting(now_ms, LEVELS)
    with pytest.raises(MessageRefusedError) as caught:
        placed_topic(routing, {name: "1"})
    assert (caught.value.code, caught.value.status) == (1, "WHEEL_TIMER_NOT_ENABLE")
    assert placed_topic(routing, {"TIMER_OUT_MS": "5", name: "1"}) == "T"


def test_transactions_wait_when_they_are_committed() -> None:
    """A committed message is delayed as others are; one that is open, or was rolled back, is stored as it is."""
    routing = DelayRouting(now_ms, LEVELS)
    assert placed_topic(routing, {"DELAY": "2"}, TRANSACTION_COMMIT) == SCHEDULE_TOPIC
    assert placed_topic(routing, {"DELAY": "2"}, TRANSACTION_PREPARED) == "T"
    assert placed_topic(routing, {"TIMER_DELAY_SEC": "2"}, TRANSACTION_ROLLBACK) == "T"


def test_level_that_is_no_number_is_told() -> None:
    """It is not taken for no delay."""
    with pytest.raises(DecodeError, match="soon"):
        placed_topic(DelayRouting(now_ms, LEVELS), {"DELAY": "soon"})
