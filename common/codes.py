"""How requests are answered, and which releases differ: the numbers that answers carry, whatever brings them.

Operations refuse in these words, and each protocol translates them or sends them as they are (``ResponseCode``,
``MQVersion``). A code that is missing here travels as a plain integer all the same.
"""

from enum import IntEnum


class ResponseCode(IntEnum):
    """How a request was answered; the negative numbers that only live inside Java are left out."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    CONTROLLER_FENCED_MASTER_EPOCH = 2000
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001
    CONTROLLER_INVALID_MASTER = 2002
    CONTROLLER_INVALID_REPLICAS = 2003
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004
    CONTROLLER_INVALID_REQUEST = 2005
    CONTROLLER_BROKER_NOT_ALIVE = 2006
    CONTROLLER_NOT_LEADER = 2007
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010
    CONTROLLER_MASTER_STILL_EXIST = 2011
    CONTROLLER_ELECT_MASTER_FAILED = 2012
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013
    CONTROLLER_BROKER_ID_INVALID = 2014
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002


class Release(IntEnum):
    """Ordinals of the releases that change behaviour on the wire (``MQVersion``: two per release, snapshot first)."""

    V3_0_7_SNAPSHOT = 28
    V3_1_8_SNAPSHOT = 62
    V3_4_9 = 121
    V4_1_0_SNAPSHOT = 232
    V4_5_2 = 317
    V4_9_3 = 399
    V4_9_4 = 401
    V5_0_0 = 413
    V5_3_1 = 475
    V5_3_3 = 479


_FIRST_NAMES = (
    *("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5"),
    *(f"BETA{number}{suffix}" for number in range(6, 10) for suffix in ("_SNAPSHOT", "")),
    "FINAL",
)
_FIRST_PATCHES = 15


def old_version_name(version: int) -> str:
    """Return the name of a release before 3.1.8 (``MQVersion.getVersionDesc``).

    >>> [old_version_name(version) for version in (0, 15, 16, 28, 46, 61)]
    ['V3_0_0_SNAPSHOT', 'V3_0_0_FINAL', 'V3_0_1_SNAPSHOT', 'V3_0_7_SNAPSHOT', 'V3_1_0_SNAPSHOT', 'V3_1_7']
    """
    if version < len(_FIRST_NAMES):
        return f"V3_0_0_{_FIRST_NAMES[max(version, 0)]}"
    patch, is_final = divmod(version - len(_FIRST_NAMES), 2)
    name = f"V3_0_{patch + 1}" if patch < _FIRST_PATCHES else f"V3_1_{patch - _FIRST_PATCHES}"
    return name if is_final else f"{name}_SNAPSHOT"


VERSION = int(Release.V5_3_3)
"""What rocketlet reports as its own version."""
