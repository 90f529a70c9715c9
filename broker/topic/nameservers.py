"""One name server as a broker sees it: register, add a topic, unregister (``BrokerOuterAPI``; behaviour.md A.9).

The address that is registered is, in this order: what ``--advertise`` or ``brokerIP1`` says; the address that the
broker listens at; if it listens at all of them, the one from which it reaches this name server. In the last two cases
a name server of ours on this machine is told that clients may use any host that leads here
(``namesrv/handlers.py``); others ignore that.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from ...common.errors import RemotingError
from ...common.hashing import crc31
from ...remoting.bodies.body import decode_body, encode_body
from ...remoting.bodies.route import EncodedRegistration, KVTable, QueueData, TopicConfig, TopicRouteData
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.namesrv import RegisterBrokerHeader, RegisterTopicHeader, UnregisterBrokerHeader
from ...remoting.transport.addresses import ANY_HOSTS, format_address, is_loopback, reachable_host
from ...remoting.transport.client import ConnectionPool
from ...remoting.transport.connection import Connection
from ..settings.config import BrokerConfig

UNREGISTER_TIMEOUT_MS = 3000
_log = logging.getLogger(__name__)


class RegisterOutcome(NamedTuple):
    """What a name server said; ``ordered`` are the topics that it knows as ordered, None when it tells of none."""

    is_accepted: bool
    remark: str | None
    ordered: Mapping[str, str] | None


class NameServerLink:
    """Registers one broker at one name server; ``lost`` is set when the connection of a registration has ended."""

    def __init__(self, address: str, pool: ConnectionPool, config: BrokerConfig, port: int) -> None:
        self.address = address
        self._pool = pool
        self._config = config
        self._port = port
        self._connection: Connection | None = None
        self._is_registered = False
        self.lost = asyncio.Event()

    def __repr__(self) -> str:
        return f"<NameServerLink {self.address}>"

    @property
    def is_registered(self) -> bool:
        """Whether this name server has taken a registration, and the connection of that is still there."""
        return self._is_registered and not self.lost.is_set()

    async def register(self, registration: EncodedRegistration) -> RegisterOutcome:
        """Register topics.

        Raises:
            RemotingError: no answer.
        """
        body = registration.body
        host = await self._own_host()
        header = RegisterBrokerHeader(
            broker_name=self._config.broker_name,
            broker_addr=format_address(host, self._config.advertised_port or self._port),
            cluster_name=self._config.cluster_name,
            ha_server_addr=format_address(host, self._config.ha_port or self._port + 1),
            broker_id=self._config.broker_id,
            compressed=registration.is_compressed,
            body_crc32=crc31(body),
            follows_clients=not self._config.advertised_host,
        )
        command = Command.request(RequestCode.REGISTER_BROKER, header, body)
        answer = await self._pool.request(self.address, command, self._config.register_timeout_ms)
        await self._watch()
        self._is_registered = answer.code == ResponseCode.SUCCESS
        ordered = decode_body(KVTable, answer.body).table if answer.body else None
        return RegisterOutcome(self._is_registered, answer.remark, ordered)

    async def register_topic(self, topic: TopicConfig) -> bool:
        """Register one topic beside those that are known; tell whether the name server could (RocketMQ 5 can).

        Raises:
            RemotingError: no answer.
        """
        queues = QueueData(
            broker_name=self._config.broker_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_sys_flag=topic.topic_sys_flag,
        )
        header, body = RegisterTopicHeader(topic=topic.topic_name), encode_body(TopicRouteData(queue_datas=[queues]))
        command = Command.request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)
        answer = await self._pool.request(self.address, command, self._config.register_timeout_ms)
        return answer.code == ResponseCode.SUCCESS

    async def unregister(self) -> None:
        """Take the broker out of the routes; a name server that cannot be reached forgets it by itself."""
        try:
            host = await self._own_host()
            header = UnregisterBrokerHeader(
                broker_name=self._config.broker_name,
                broker_addr=format_address(host, self._config.advertised_port or self._port),
                cluster_name=self._config.cluster_name,
                broker_id=self._config.broker_id,
            )
            command = Command.request(RequestCode.UNREGISTER_BROKER, header)
            await self._pool.request(self.address, command, UNREGISTER_TIMEOUT_MS)
        except RemotingError as error:
            _log.warning(
                "unregistering at name server %s failed, it keeps the routes until it finds the connection closed: %s",
                self.address,
                error,
            )

    async def _watch(self) -> None:
        """Hear of the end of the connection, once for each."""
        connection = await self._pool.connect(self.address)
        if connection is not self._connection:
            self._connection = connection
            self.lost.clear()
            connection.on_close(lambda ended: self.lost.set() if ended is self._connection else None)

    async def _own_host(self) -> str:
        if self._config.advertised_host:
            return self._config.advertised_host
        if self._config.host not in ANY_HOSTS:
            return self._config.host
        connection = await self._pool.connect(self.address)
        host = connection.local_address[0]
        return reachable_host(self._config.host) if is_loopback(host) else host
