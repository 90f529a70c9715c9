"""Headers of requests about one topic (``spec/remoting.md`` §4.2).

216  DELETE_TOPIC_IN_NAMESRV      DeleteTopicHeader      -
217  REGISTER_TOPIC_IN_NAMESRV    RegisterTopicHeader    -
"""

import msgspec

from ..remoting.fields import NULL


class RegisterTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which topic; its queues are in the body."""

    topic: str


class DeleteTopicHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which topic, and of which cluster if not of all."""

    topic: str = NULL
    cluster_name: str | None = None
