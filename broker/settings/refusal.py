"""Refusals: answers that are no success, in Java's words."""

from typing import NamedTuple, final

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@final
class Refusal(NamedTuple):
    """An answer that is no success: a code of ``ResponseCode`` and what the client is told.

    ``new_topics`` were made on the way, and have to be known before the client is answered.
    """

    code: int
    remark: str | None = None
    new_topics: tuple[str, ...] = ()
