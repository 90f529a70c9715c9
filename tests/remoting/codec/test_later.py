"""Answers that are owed: paid once, whoever pays when."""

from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.later import Encoded, Later


class _Till:
    def __init__(self) -> None:
        self.paid: list[Command | Encoded] = []

    def settle_later(self, later: Later, reply: Command | Encoded) -> None:
        assert later.is_settled
        self.paid.append(reply)


def test_answer_after_the_hand_over_is_sent_once():
    """The first answer counts, the second is ignored."""
    till, later = _Till(), Later(Command(code=11))
    assert later.hand_over(till) is None
    later.answer(b"first")
    later.answer(b"second")
    assert till.paid == [b"first"]


def test_answer_before_the_hand_over_waits():
    """A part may pay before the handler has returned; the connection then sends that answer."""
    till, later = _Till(), Later(Command(code=11))
    later.answer(b"early")
    later.answer(b"late")
    assert later.hand_over(till) == b"early"
    later.answer(b"later")
    assert till.paid == []


def test_drop_is_told_once():
    """When the connection ends, who owes is told once, and an answer does nothing any more."""
    till, later, told = _Till(), Later(Command(code=11)), list[str]()
    later.on_drop(lambda: told.append("dropped"))
    later.hand_over(till)
    later.drop()
    later.drop()
    later.answer(b"too late")
    assert (told, till.paid, later.connection_closed) == (["dropped"], [], True)
    assert repr(later).startswith("<Later dropped for")


def test_settled_answer_is_not_dropped():
    """A paid debt is not told of the connection's end."""
    later, told = Later(Command(code=11)), list[str]()
    later.on_drop(lambda: told.append("dropped"))
    later.hand_over(_Till())
    later.answer(b"paid")
    later.drop()
    assert told == []
    assert not later.connection_closed


def test_one_way_request_is_written_off():
    """An answer to a request that wants none goes nowhere."""
    later = Later(Command(code=11))
    later.write_off()
    later.answer(b"nobody wants this")
    assert later.is_settled
    assert repr(later).startswith("<Later settled for")
