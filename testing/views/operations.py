"""What clients ask for, in the words that tests use: a name for every request code.

``send``, ``pull`` and their like stand for what people know, some for several codes; all others are called as Java
calls them, in lower case (``get_broker_config``), and a code that nobody knows by its number. The names are stable.
"""

from collections.abc import Mapping
from typing import Final

from ...common.errors import nearest
from ...remoting.codec.request_codes import RequestCode as Code

_WORDS: Final[Mapping[str, tuple[Code, ...]]] = {
    "send": (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE),
    "send_back": (Code.CONSUMER_SEND_MSG_BACK,),
    "reply": (Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2),
    "recall": (Code.RECALL_MESSAGE,),
    "end_transaction": (Code.END_TRANSACTION,),
    "resume_check": (Code.RESUME_CHECK_HALF_MESSAGE,),
    "pull": (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE),
    "query_messages": (Code.QUERY_MESSAGE,),
    "view_message": (Code.VIEW_MESSAGE_BY_ID,),
    "heartbeat": (Code.HEART_BEAT,),
    "unregister_client": (Code.UNREGISTER_CLIENT,),
    "list_consumers": (Code.GET_CONSUMER_LIST_BY_GROUP,),
    "check_client": (Code.CHECK_CLIENT_CONFIG,),
    "lock_queues": (Code.LOCK_BATCH_MQ,),
    "unlock_queues": (Code.UNLOCK_BATCH_MQ,),
    "committed_offset": (Code.QUERY_CONSUMER_OFFSET,),
    "commit_offset": (Code.UPDATE_CONSUMER_OFFSET,),
    "search_offset": (Code.SEARCH_OFFSET_BY_TIMESTAMP,),
    "max_offset": (Code.GET_MAX_OFFSET,),
    "min_offset": (Code.GET_MIN_OFFSET,),
    "earliest_stored_at": (Code.GET_EARLIEST_MSG_STORETIME,),
    "create_topic": (Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST),
    "delete_topic": (Code.DELETE_TOPIC_IN_BROKER,),
    "create_group": (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
    "delete_group": (Code.DELETE_SUBSCRIPTIONGROUP,),
    "route": (Code.GET_ROUTEINFO_BY_TOPIC,),
    "cluster": (Code.GET_BROKER_CLUSTER_INFO,),
}
_NAMES: Final[Mapping[int, str]] = {int(code): code.name.lower() for code in Code} | {
    int(code): name for name, codes in _WORDS.items() for code in codes
}
BETWEEN_SERVERS: Final = frozenset(
    {
        *(Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION),
        *(Code.REGISTER_TOPIC_IN_NAMESRV, Code.GET_BROKER_MEMBER_GROUP),
    }
)
"""What brokers ask name servers: no request of a client, and looked at only where it is named."""


def operation_name(code: int) -> str:
    """Return what a request asks for.

    >>> [operation_name(code) for code in (10, 310, 320, 15, 105, 26, 99_999)]
    ['send', 'send', 'send', 'commit_offset', 'route', 'get_broker_config', '99999']
    """
    return _NAMES.get(code, str(code))


def codes_of(operation: str) -> frozenset[int]:
    """Return the request codes that an operation stands for; a number stands for itself.

    >>> sorted(codes_of("send")), codes_of("99999")
    ([10, 310, 320], frozenset({99999}))

    Raises:
        ValueError: no operation is called so.
    """
    codes = frozenset(code for code, name in _NAMES.items() if name == operation)
    if codes:
        return codes
    if operation.isdecimal():
        return frozenset([int(operation)])
    raise ValueError(f"no operation is called {operation!r}{nearest(operation, _NAMES.values())}")
