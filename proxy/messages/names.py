"""Names and places in requests: topics and groups that clients may use, and the endpoints that they dial."""

from functools import lru_cache

from ...common.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    client_group_remark,
    client_topic_remark,
    is_system_group,
    is_system_topic,
)
from . import v2
from .enums import AddressScheme, Code
from .statuses import status


@lru_cache(maxsize=1024)
def is_usable_topic(name: str) -> bool:
    """Tell whether clients may use a topic and it is nobody's retry topic or dead letters."""
    is_derived = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return not is_derived and client_topic_remark(name) is None and not is_system_topic(name)


@lru_cache(maxsize=1024)
def is_usable_group(name: str) -> bool:
    """Tell whether clients may use a consumer group."""
    return client_group_remark(name) is None and not is_system_group(name)


def topic_fault(topic: v2.Resource) -> v2.Status | None:
    """Return why clients may not use a topic; None if they may, whether it exists or not."""
    remark = client_topic_remark(topic.name)
    if remark is None and is_system_topic(topic.name):
        remark = "cannot access system topic"
    return None if remark is None else status(Code.ILLEGAL_TOPIC, remark)


def group_fault(group: v2.Resource) -> v2.Status | None:
    """Return why clients may not use a consumer group; None if they may."""
    remark = client_group_remark(group.name)
    if remark is None and is_system_group(group.name):
        remark = "cannot use system consumer group"
    return None if remark is None else status(Code.ILLEGAL_CONSUMER_GROUP, remark)


def endpoints_of(host: str, port: int) -> v2.Endpoints:
    """Return the endpoints that lead to one address."""
    if ":" in host:
        scheme = AddressScheme.IPv6
    elif host.replace(".", "").isdigit():
        scheme = AddressScheme.IPv4
    else:
        scheme = AddressScheme.DOMAIN_NAME
    return v2.Endpoints(scheme=scheme, addresses=[v2.Address(host=host, port=port)])
