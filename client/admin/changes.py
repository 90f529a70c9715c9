"""Changes of topics, groups and settings that leave all else as it is (17, 200, 351, 201, 25, 26, 318, 319).

Java's brokers replace the settings of a topic or group as a whole, so what they have is read first. Who changes the
same topic or group at the same moment may lose one of the changes. Settings of a server are texts by Java's keys, one
request for all that change; a broker takes all of them or none.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, ResponseError
from ...common.metadata import SubscriptionGroupConfig, SubscriptionGroupTable, TopicConfig
from ...common.names import AUTO_CREATE_TOPIC, PERM_READ, PERM_WRITE
from ...common.settings import format_java_properties, parse_java_properties
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import CreateTopicHeader, TopicHeader
from .admin_calls import AdminCalls
from .admin_values import GroupSettings, TopicSettings, read_group, read_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """What is to be different about a topic; ``None`` leaves as it is, ``dropped`` names attributes that go."""

    read_queues: int | None = None
    write_queues: int | None = None
    can_read: bool | None = None
    can_write: bool | None = None
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    dropped: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """What is to be different about a group; ``None`` leaves as it is."""

    can_consume: bool | None = None
    can_broadcast: bool | None = None
    retries: int | None = None
    retry_queues: int | None = None
    tells_members: bool | None = None


class ConfigChanges:
    """Reads and changes what single servers are set to."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def topic_config(self, address: str, topic: str) -> TopicConfig | None:
        """Return a topic as a broker has it, or None."""
        command = Command.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader(topic=topic))
        answer = await self._calls.ask_broker(address, command, [ResponseCode.TOPIC_NOT_EXIST])
        return decode_answer(TopicConfig, answer.body) if answer.code == ResponseCode.SUCCESS else None

    async def group_table(self, address: str) -> SubscriptionGroupTable:
        """Return the groups that a broker has."""
        answer = await self._calls.ask_broker(address, Command.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return decode_answer(SubscriptionGroupTable, answer.body)

    async def change_topic(self, address: str, topic: str, change: TopicChange) -> TopicSettings:
        """Change a topic on a broker; return how it is now.

        Raises:
            ConfigError: a number is out of its range.
            ResponseError: the broker does not have it, or refused the change.
        """
        config = await self.topic_config(address, topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"broker {address} has no topic {topic}")
        kept = {name: value for name, value in config.attributes.items() if name not in change.dropped}
        given = _given(change, ("read_queues", "write_queues", "can_read", "can_write"))
        settings = replace(read_topic(config), attributes=kept | dict(change.attributes), **given)
        header = CreateTopicHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=settings.read_queues,
            write_queue_nums=settings.write_queues,
            perm=config.perm & ~(PERM_READ | PERM_WRITE) | settings.permission,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=_attribute_text(change),
        )
        await self._calls.ask_broker(address, Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        return settings

    async def change_group(self, address: str, config: SubscriptionGroupConfig, change: GroupChange) -> GroupSettings:
        """Change a group on a broker that has told its settings; return how it is now.

        Raises:
            ConfigError: a number is out of its range.
            ResponseError: the broker refused it.
        """
        settings = replace(read_group(config), **_given(change, [each.name for each in fields(GroupChange)]))
        config.consume_enable = settings.can_consume
        config.consume_broadcast_enable = settings.can_broadcast
        config.retry_max_times = settings.retries
        config.retry_queue_nums = settings.retry_queues
        config.notify_consumer_ids_changed_enable = settings.tells_members
        command = Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config))
        await self._calls.ask_broker(address, command)
        return settings

    async def broker_settings(self, address: str) -> dict[str, str]:
        """Return what a broker is set to."""
        answer = await self._calls.ask_broker(address, Command.request(RequestCode.GET_BROKER_CONFIG))
        return _parse_settings(answer, address)

    async def change_broker(self, address: str, changes: Mapping[str, str]) -> None:
        """Change settings of a broker, all or none."""
        body = format_java_properties(changes).encode()
        await self._calls.ask_broker(address, Command.request(RequestCode.UPDATE_BROKER_CONFIG, body=body))

    async def nameserver_settings(self) -> dict[str, dict[str, str]]:
        """Return what each name server is set to, by address."""
        answers = await self._calls.ask_nameservers(RequestCode.GET_NAMESRV_CONFIG)
        return {address: _parse_settings(answer, address) for address, answer in answers.items()}

    async def change_nameservers(self, changes: Mapping[str, str]) -> None:
        """Change settings of all name servers."""
        body = format_java_properties(changes).encode()
        await self._calls.ask_nameservers(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)


def _given(change: TopicChange | GroupChange, names: Collection[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(change, name)) is not None}


def _attribute_text(change: TopicChange) -> str | None:
    added = [f"+{name}={value}" for name, value in sorted(change.attributes.items())]
    return ",".join([*added, *(f"-{name}" for name in sorted(change.dropped))]) or None


def _parse_settings(answer: Command, address: str) -> dict[str, str]:
    try:
        return parse_java_properties(answer.body.decode(errors="replace"))
    except DecodeError as error:
        raise DecodeError(f"the settings of {address} cannot be read: {error}") from error
