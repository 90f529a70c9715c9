"""``--topic``: topics that are there when clients can connect, made by the request that administrators send.

At brokers that ask who that is, in the name of a super user of the settings.

A topic that a broker has keeps what it is, but for more queues where the option asks for more: fewer would hide the
messages in the others.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from ...broker.settings.security import Login, SecurityConfig
from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import ConfigError, RemotingError
from ...common.metadata import TopicConfig
from ...common.names import AUTO_CREATE_TOPIC, PERM_READ, PERM_WRITE, broker_topic_remark, is_system_topic
from ...common.settings import parse_settings
from ...remoting.bodies.body import decode_body
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import CreateTopicHeader, TopicHeader
from ...remoting.transport.client import ConnectionPool

OPTION: Final = "--topic"
DEFAULT_QUEUES: Final = 8
_MOST_QUEUES: Final = 65_535
_TIMEOUT_MS: Final = 30_000


def parse_topics(texts: Sequence[str]) -> dict[str, int | None]:
    """Read values of the option, ``NAME`` or ``NAME:QUEUES``.

    Raises:
        BadParameter: a name or a number that no topic can have, or two numbers for one name.
    """
    topics: dict[str, int | None] = {}
    for text in texts:
        name, colon, number = text.partition(":")
        if (remark := broker_topic_remark(name)) is not None:
            raise click.BadParameter(remark)
        if is_system_topic(name):
            raise click.BadParameter(f"{name} is a topic of the system")
        is_number = number.isascii() and number.isdecimal() and 1 <= int(number) <= _MOST_QUEUES
        if colon and not is_number:
            raise click.BadParameter(f"{text!r} is not NAME or NAME:QUEUES, with 1 to {_MOST_QUEUES} queues")
        queues = int(number) if colon else None
        if topics.setdefault(name, queues) != queues:
            raise click.BadParameter(f"{name} is named twice, with different queues")
    return topics


def find_login(given: Mapping[str, str]) -> Login | None:
    """Return in whose name a broker with these settings is asked, if that matters."""
    security = SecurityConfig(**parse_settings(SecurityConfig, given))
    return (security.inner_user or security.init_user) if security.authenticates else None


async def create_topics(
    topics: Mapping[str, int | None], masters: Sequence[str], clock: Clock, login: Login | None = None
) -> None:
    """Create topics at each master.

    Raises:
        ConfigError: a broker refuses one.
    """
    async with ConnectionPool(clock, sign=login.sign if login else None) as pool:
        for address in masters:
            for name, queues in topics.items():
                known = await _find_topic(pool, address, name)
                wanted = _plan_topic(known, name, queues)
                if wanted is not None:
                    await _ask(pool, address, Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted), name)


async def _find_topic(pool: ConnectionPool, address: str, name: str) -> TopicConfig | None:
    answer = await _ask(pool, address, Command.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader(topic=name)), name)
    return decode_body(TopicConfig, answer.body) if answer.code == ResponseCode.SUCCESS else None


def _plan_topic(known: TopicConfig | None, name: str, queues: int | None) -> CreateTopicHeader | None:
    """Return what is to be asked for; None where the topic is as it shall be."""
    if known is None:
        wanted = queues or DEFAULT_QUEUES
        return _header(name, wanted, wanted, PERM_READ | PERM_WRITE)
    reads, writes = max(known.read_queue_nums, queues or 0), max(known.write_queue_nums, queues or 0)
    if (reads, writes) == (known.read_queue_nums, known.write_queue_nums):
        return None
    header = _header(name, reads, writes, known.perm)
    header.topic_filter_type, header.topic_sys_flag = known.topic_filter_type, known.topic_sys_flag
    header.order = known.order
    return header


def _header(name: str, reads: int, writes: int, perm: int) -> CreateTopicHeader:
    return CreateTopicHeader(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=reads,
        write_queue_nums=writes,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )


async def _ask(pool: ConnectionPool, address: str, command: Command, name: str) -> Command:
    """Return the answer of a broker; that there is no such topic is one.

    Raises:
        ConfigError: it refuses, or does not answer.
    """
    try:
        answer = await pool.request(address, command, _TIMEOUT_MS)
    except RemotingError as error:
        raise ConfigError(f"topic {name} cannot be created: {error}", key=OPTION) from error
    if answer.code not in {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}:
        raise ConfigError(f"topic {name} cannot be created at {address}: {answer.remark}", key=OPTION)
    return answer
