"""Refusals: answers that are no success, in Java's words; and what a broker calls itself in them."""

from typing import NamedTuple, final

from .config import BrokerConfig

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@final
class Refusal(NamedTuple):
    """An answer that is no success: a code of ``ResponseCode`` and what the client is told.

    ``new_topics`` were made on the way, and have to be known before the client is answered.
    """

    code: int
    remark: str | None = None
    new_topics: tuple[str, ...] = ()


class BrokerIdentity(NamedTuple):
    """The settings of this broker, and the address by which it names itself."""

    config: BrokerConfig
    ip: str

    def forbids(self, doing: str) -> str:
        """Return the sentence for what the broker's permission does not allow."""
        return f"the broker[{self.ip}] {doing} is forbidden"
