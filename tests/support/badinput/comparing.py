"""Whether our answer to a bad request is the official one.

Rules, in this order
    1. A request that Java does not answer is not answered here either, one that ends its connection ends it here.
    2. A deviation that is listed (``deviations``) is as it stands there.
    3. The codes are the same.
    4. A success has no remark here where Java forgets to clear its default, or leaves an empty one. (Clients do not
       read remarks of successes.)
    5. Where Java tells its exception, we tell the sender's mistake: a sentence that names no class of ours. If only one
       thing is wrong, then what Java words itself inside the exception (``RemotingCommandException``) is how our
       sentence begins, and a field that is missing or no number is named.
    6. Every other remark is the same, letter by letter.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from badinput.case import Answer, Case

# Texts of exceptions: with their class, or only what NullPointerException, NumberFormatException and indices say.
_EXCEPTION = re.compile(
    r"(?:java|com|org)(?:\.\w+)+(?:Exception|Error)\b|Cannot invoke |For input string: |Index -?\d+ out of bounds"
)
_OWN_WORDS = re.compile(r"RemotingCommandException: (?P<words>.*), [\w.$<>]+\(\w+\.java:\d+\)$", re.DOTALL)
_FOREIGN = re.compile(r"rocketlet\.|builtins\.|msgspec|Traceback|\w(?:Error|Exception)\b|\.py:\d")
_ABOUT_FIELD = re.compile(r"(\w+): (?!')")
_READING_FAILED = re.compile(r"NumberFormatException|Cannot invoke \"java\.lang\.(?:Integer|Long)\.")
_DEFAULT_REMARKS = ("", "not set any response code")


class Deviation(NamedTuple):
    """Requests that are answered otherwise on purpose."""

    reason: str
    cases: str
    """Pattern of the names of the cases."""
    code: int
    remark: str | None = None
    """Pattern of our remark; ``None`` for none."""

    def covers(self, case: Case) -> bool:
        """Tell whether it is about a case."""
        return re.fullmatch(self.cases, case.name) is not None

    def allows(self, ours: Case) -> bool:
        """Tell whether our answer is the one that stands here."""
        if ours.answer is None or ours.answer.code != self.code:
            return False
        return _fits(self.remark, ours.answer.remark)


def find_differences(java: Sequence[Case], ours: Sequence[Case], deviations: Iterable[Deviation]) -> list[str]:
    """Return a line for every case whose answer is wrong, and for every deviation about them that is none."""
    listed = [one for one in deviations if any(map(one.covers, java))]
    used: set[Deviation] = set()
    lines: list[str] = []
    for expected, got in zip(java, ours, strict=True):
        reason = describe_difference(expected, got)
        if reason is None:
            continue
        deviation = next((one for one in listed if one.covers(expected) and one.allows(got)), None)
        if deviation is not None:
            used.add(deviation)
        else:
            lines.append(f"{expected.name}: {reason}\n    Java {_show(expected)}\n    ours {_show(got)}")
    return lines + [f"nothing deviates any more: {one.reason}" for one in listed if one not in used]


def describe_difference(java: Case, ours: Case) -> str | None:
    """Return what is wrong with our answer, None when nothing is."""
    if java.answer is None or ours.answer is None:
        is_same = java.answer is ours.answer and java.closed == ours.closed
        return None if is_same else "answered, closed or silent"
    if java.answer.code != ours.answer.code:
        return "code"
    if java.answer.remark == ours.answer.remark:
        return None
    if java.answer.code == 0:
        is_fine = java.answer.remark in _DEFAULT_REMARKS and ours.answer.remark is None
        return None if is_fine else "remark of a success"
    return _describe_remark(java, java.answer.remark or "", ours.answer)


def _describe_remark(case: Case, java: str, ours: Answer) -> str | None:
    remark = ours.remark or ""
    if _EXCEPTION.search(java) is None:
        return "remark"
    if not remark or _FOREIGN.search(remark):
        return "no sentence for a sender"
    field = _ABOUT_FIELD.match(case.title)
    if field is None:
        return None
    own = _OWN_WORDS.search(java)
    if own is not None and not remark.startswith(own["words"]):
        return "not Java's own words"
    if field[1] != "body" and _READING_FAILED.search(java) and f"<{field[1]}>" not in remark:
        return "the field is not named"
    return None


def _fits(pattern: str | None, remark: str | None) -> bool:
    if pattern is None or remark is None:
        return pattern is remark
    return re.fullmatch(pattern, remark, re.DOTALL) is not None


def _show(case: Case) -> str:
    if case.answer is None:
        return "closed the connection" if case.closed else "did not answer"
    return f"{case.answer.code} {case.answer.remark!r:.300}"
