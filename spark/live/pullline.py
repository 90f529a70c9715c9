"""Connections to the brokers of one reading, as long as one batch of answers takes.

Rule: where requests need nothing done to them (no keys of a user), their frames come ready from ``PullFrames``.
"""

import logging
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from ...client.session.interceptors import RequestPipeline
from ...client.session.routes import MASTER_ID, choose_address
from ...client.session.session import Session
from ...client.session.settings import ssl_context_of
from ...common.errors import RocketletError
from ...common.message import MessageQueue
from ...common.names import is_system_topic
from ...common.subscription import ALL, TAG_TYPE
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.register import TopicConfig
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.client import TopicHeader
from ...remoting.headers.pull import PULL_SUBSCRIPTION, PullHeader
from ...remoting.headers.pull_frames import PullFrames
from ...remoting.transport.client import ConnectionPool
from ...remoting.transport.clock import LoopClock
from ..cluster.liveoptions import LiveOptions
from ..cluster.liverange import LiveRange

_CODE: Final = RequestCode.PULL_MESSAGE
_TOPIC_CODE: Final = RequestCode.GET_TOPIC_CONFIG
_log = logging.getLogger(__name__)


@dataclass
class Learned:
    """What a reading has found out: where brokers are now, and which tags they shall filter by topic."""

    addresses: dict[str, str] = field(default_factory=dict[str, str])
    expressions: dict[str, str] = field(default_factory=dict[str, str])


class PullLine:
    """Sends pulls to where the brokers are."""

    def __init__(self, options: LiveOptions, learned: Learned) -> None:
        self.clock = LoopClock()
        self._options = options
        self._timeout_ms = options.access.timeout_ms
        self._learned = learned
        self._pool = ConnectionPool(self.clock, tls=ssl_context_of(options.access.tls))
        self._pipeline = RequestPipeline(options.access.client_settings, namespace="")
        self._frames: dict[MessageQueue, PullFrames] = {}

    async def __aenter__(self) -> Self:
        """Connections are made when they are needed."""
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._pool.__aexit__(None, None, None)

    def address_of(self, pulled: LiveRange) -> str:
        """Return where the broker of a range is, as far as is known."""
        return self._learned.addresses.get(pulled.broker, pulled.address)

    def filters(self, pulled: LiveRange) -> bool:
        """Tell whether the broker filters by tags."""
        return self._learned.expressions.get(pulled.topic, ALL) != ALL

    async def prepare(self, pulled: LiveRange) -> None:
        """Find out whether the broker of a range can filter by tags, before it is pulled.

        Of an inner batch brokers know no tags, and of a system topic other ones: there, and in doubt, all is pulled.
        """
        topic, tags = pulled.topic, self._options.selection.tags
        if topic not in self._learned.expressions:
            is_filtered = bool(tags) and not is_system_topic(topic) and await self._has_single_messages(pulled)
            self._learned.expressions[topic] = "||".join(sorted(tags)) if is_filtered else ALL

    async def pull(self, pulled: LiveRange, queue_offset: int, max_messages: int) -> Command:
        """Return the answer to a pull, whatever its code.

        Raises:
            RemotingError: None came in time.
        """
        if not self._pipeline.is_empty:
            return await self._ask(pulled, Command.request(_CODE, self._header(pulled, queue_offset, max_messages)))
        address = self.address_of(pulled)
        connection = await self._pool.connect(address)
        opaque = connection.next_opaque()
        frame = self._frames_of(pulled).encode(queue_offset, max_messages, opaque)
        return self._heed(address, await connection.ask_frame(frame, opaque, _CODE, self._timeout_ms))

    async def find_again(self, pulled: LiveRange) -> str | None:
        """Learn from a name server where a broker is now; return why that is not known."""
        access = self._options.access
        try:
            async with Session(access.nameserver, settings=access.client_settings) as session:
                route = await session.route(pulled.topic, access.timeout_ms)
        except RocketletError as error:
            return str(error)
        found = choose_address(route.brokers.get(pulled.broker, {}), MASTER_ID)
        if found is None:
            return f"no name server knows broker {pulled.broker}"
        self._learned.addresses[pulled.broker] = found.address
        return None

    async def _has_single_messages(self, pulled: LiveRange) -> bool:
        try:
            answer = await self._ask(pulled, Command.request(_TOPIC_CODE, TopicHeader(topic=pulled.topic)))
            config = decode_answer(TopicConfig, answer.body) if answer.code == ResponseCode.SUCCESS else None
        except RocketletError as error:
            _log.warning("topic %s: fetching its type failed, filtering on the client: %s", pulled.topic, error)
            return False
        return config is not None and config.attributes.get("queue.type") != "BatchCQ"

    async def _ask(self, pulled: LiveRange, command: Command) -> Command:
        address = self.address_of(pulled)
        connection = await self._pool.connect(address)
        self._pipeline.before_request(address, command)
        return self._heed(address, await connection.request(command, self._timeout_ms))

    def _heed(self, address: str, answer: Command) -> Command:
        if answer.code == ResponseCode.GO_AWAY:
            self._pool.close(address)
        return answer

    def _frames_of(self, pulled: LiveRange) -> PullFrames:
        queue = pulled.queue
        if queue not in self._frames:
            self._frames[queue] = PullFrames(self._header(pulled, 0, 0))
        return self._frames[queue]

    def _header(self, pulled: LiveRange, queue_offset: int, max_messages: int) -> PullHeader:
        return PullHeader(
            consumer_group=self._options.group,
            topic=pulled.topic,
            queue_id=pulled.queue_id,
            queue_offset=queue_offset,
            max_messages=max_messages,
            sys_flag=PULL_SUBSCRIPTION,
            subscription=self._learned.expressions.get(pulled.topic, ALL),
            expression_type=TAG_TYPE,
            broker_name=pulled.broker,
        )
