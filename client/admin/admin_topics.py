"""Topics, as administrators make, read and delete them (requests 17, 351, 215, 216, 206, 224).

Every broker has its own table of topics; a change goes to the masters of a cluster one after the other. With one
cluster it need not be named. A new topic can be used when ``create_topic`` returns: the name servers know it.
"""

from collections.abc import Collection

from ...common.errors import RequestTimeoutError, RouteNotFoundError
from ...common.message import MessageQueue
from ...common.names import AUTO_CREATE_TOPIC
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.register import TopicConfig
from ...remoting.bodies.route import TopicList
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.client import CreateTopicHeader, TopicHeader
from ...remoting.headers.namesrv_admin import BrokerNameHeader, ClusterHeader
from ..session.settings import check_topic
from .admin_calls import ADMIN_TIMEOUT_MS, AdminCalls
from .admin_values import TopicSettings, read_topic

ROUTE_PAUSE_MS = 50


class TopicAdmin(AdminCalls):
    """Topics."""

    async def topics(self, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of those of a cluster; system, retry and dead letter topics too."""
        if cluster is None:
            answer = await self._ask_nameserver(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            answer = await self._ask_nameserver(RequestCode.GET_TOPICS_BY_CLUSTER, ClusterHeader(cluster=cluster))
        return sorted(set(decode_answer(TopicList, answer.body).topic_list))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read or written.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return await self._queues(topic)

    async def topic(self, name: str) -> dict[str, TopicSettings]:
        """Return the settings of a topic on each broker that has it.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        found: dict[str, TopicSettings] = {}
        for broker_name, address in (await self._masters_of_topic(name)).items():
            command = Command.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader(topic=name))
            answer = await self._ask_broker(address, command, [ResponseCode.TOPIC_NOT_EXIST])
            if answer.code == ResponseCode.SUCCESS:
                found[broker_name] = read_topic(decode_answer(TopicConfig, answer.body))
        return found

    async def create_topic(
        self,
        name: str,
        settings: TopicSettings | None = None,
        *,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> None:
        """Create or change a topic on the masters of a cluster, or on those of the brokers named.

        Raises:
            ValueError: the name is not allowed, or there is no such cluster or broker.
            ResponseError: a broker refused it.
            RequestTimeoutError: the brokers have it, but no name server told so in time.
        """
        check_topic(name)
        settings = settings or TopicSettings()
        masters = await self._masters(cluster, brokers)
        for address in masters.values():
            await self._ask_broker(
                address, Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, _header(name, settings))
            )
        await self._wait_routed(name, set(masters))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic on its brokers and on every name server; what is in the log stays until it expires.

        Raises:
            RouteNotFoundError: there is no such topic.
            ResponseError: a server refused it.
        """
        for address in (await self._masters_of_topic(name)).values():
            await self._ask_broker(
                address, Command.request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=name))
            )
        await self._ask_nameservers(RequestCode.DELETE_TOPIC_IN_NAMESRV, TopicHeader(topic=name))
        self._session.routes.discard(name)

    async def forbid_writes(self, broker: str) -> None:
        """Have no more messages sent to a broker: all its topics lose their write permission at the name servers."""
        await self._ask_nameservers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker))

    async def allow_writes(self, broker: str) -> None:
        """Undo ``forbid_writes``."""
        await self._ask_nameservers(RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker))

    async def _wait_routed(self, name: str, brokers: set[str]) -> None:
        """Return when a name server tells that the topic is on the brokers; it cannot be asked to call."""
        clock = self._session.clock
        try:
            async with clock.timeout(ADMIN_TIMEOUT_MS):
                while not await self._is_routed(name, brokers):
                    await clock.sleep(ROUTE_PAUSE_MS)
        except TimeoutError:
            raise RequestTimeoutError(f"topic {name} has no route after {ADMIN_TIMEOUT_MS} ms") from None

    async def _is_routed(self, name: str, brokers: set[str]) -> bool:
        try:
            return brokers <= {share.broker_name for share in (await self._route(name)).shares}
        except RouteNotFoundError:
            return False


def _header(name: str, settings: TopicSettings) -> CreateTopicHeader:
    return CreateTopicHeader(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=settings.read_queues,
        write_queue_nums=settings.write_queues,
        perm=settings.permission,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        attributes=",".join(f"+{key}={value}" for key, value in sorted(settings.attributes.items())) or None,
    )
