"""Headers of what brokers ask consumers, for an administrator (``spec/remoting.md`` §4.12).

220  RESET_CONSUMER_CLIENT_OFFSET      GroupTopicHeader           - (one-way)
221  GET_CONSUMER_STATUS_FROM_CLIENT   GroupTopicHeader           -
307  GET_CONSUMER_RUNNING_INFO         RunningInfoHeader          -
309  CONSUME_MESSAGE_DIRECTLY          ConsumeDirectlyHeader      -
"""

import msgspec
from msgspec import field


class GroupTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Whose offsets of which topic."""

    topic: str
    group: str


class RunningInfoHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which consumer describes itself, with its stacks or without."""

    consumer_group: str
    client_id: str | None = None
    with_stacks: bool = field(name="jstackEnable", default=False)


class ConsumeDirectlyHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which consumer gets a message out of turn; the message is the body, as it is stored."""

    consumer_group: str
    client_id: str | None = None
    broker_name: str | None = None
