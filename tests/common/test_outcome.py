"""Outcomes: settled once, whoever settles them when."""

from rocketlet.common.outcome import Outcome


def test_first_answer_counts() -> None:
    """The first answer is handed on, the second is ignored."""
    told: list[str] = []
    outcome: Outcome[str] = Outcome(on_settled=lambda settled: told.append(settled.answer))
    outcome.answer_with("first")
    outcome.answer_with("second")
    outcome.fail(ValueError("too late"))
    assert (told, outcome.answer, outcome.failure) == (["first"], "first", None)


def test_answer_before_anybody_waits_stays() -> None:
    """An outcome may be settled before the connection that owes it has seen it."""
    outcome: Outcome[str] = Outcome()
    outcome.answer_with("early")
    assert (outcome.is_settled, outcome.is_dropped, outcome.answer) == (True, False, "early")
    assert repr(outcome).startswith("<Outcome settled for")


def test_drop_is_told_once() -> None:
    """When nobody is left to take the answer, who keeps it is told once, and an answer does nothing any more."""
    told: list[str] = []
    outcome: Outcome[str] = Outcome(on_settled=lambda _: told.append("settled"), on_drop=lambda: told.append("dropped"))
    outcome.drop()
    outcome.drop()
    outcome.answer_with("too late")
    assert (told, outcome.is_dropped) == (["dropped"], True)
    assert repr(outcome).startswith("<Outcome dropped for")


def test_settled_outcome_is_not_dropped() -> None:
    """Who was answered is not told of the end of the connection."""
    told: list[str] = []
    outcome: Outcome[str] = Outcome(on_drop=lambda: told.append("dropped"))
    outcome.answer_with("paid")
    outcome.drop()
    assert (told, outcome.is_dropped, outcome.on_drop) == ([], False, None)


def test_outcome_follows_another() -> None:
    """What stands for an outcome settles it in the same way, before or afterwards."""
    for is_early in (False, True):
        first: Outcome[str] = Outcome()
        second: Outcome[str] = Outcome(is_late=True)
        if is_early:
            second.answer_with("done")
        first.follow(second)
        second.answer_with("done")
        assert (first.is_settled, first.answer, first.is_late) == (True, "done", True)


def test_failure_and_drop_pass_between_followers() -> None:
    """A failure comes through, and who drops the first drops what stands for it."""
    failure = OSError("disk")
    first: Outcome[str] = Outcome()
    second: Outcome[str] = Outcome()
    first.follow(second)
    second.fail(failure)
    assert first.failure is failure
    third: Outcome[str] = Outcome()
    fourth: Outcome[str] = Outcome()
    third.follow(fourth)
    third.drop()
    assert fourth.is_dropped
