"""Headers of recalling a timer message (``spec/remoting.md`` §4.3).

    370  RECALL_MESSAGE  RecallHeader, answered with RecallReply

What is optional here and mandatory in the specification, Java's broker serves, or refuses in its own words.
"""

import msgspec
from msgspec import field


class RecallHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which message shall not be delivered."""

    topic: str
    recall_handle: str = ""
    producer_group: str | None = None


class RecallReply(msgspec.Struct, rename="camel", kw_only=True):
    """The unique key of that message."""

    msg_id: str
    region: str = field(name="MSG_REGION")
