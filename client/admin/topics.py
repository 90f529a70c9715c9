"""Topics that are made and deleted at brokers and name servers (17, 215, 216).

A topic is created on its brokers; when ``create`` returns, a name server tells that they have it. Name servers cannot
be asked to call, so they are asked again and again.
"""

from collections.abc import Mapping

from ...common.errors import RequestTimeoutError, RouteNotFoundError
from ...common.names import AUTO_CREATE_TOPIC
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import CreateTopicHeader, DeletedTopicHeader, TopicHeader
from ..session.session import Session
from .admin_calls import AdminCalls
from .admin_values import TopicSettings

ROUTE_PAUSE_MS = 50


class Topics:
    """Creates topics, and deletes them (raises ``RouteNotFoundError`` for one that is not there)."""

    def __init__(self, session: Session, calls: AdminCalls) -> None:
        self._session = session
        self._calls = calls

    async def create(self, name: str, settings: TopicSettings, masters: Mapping[str, str]) -> None:
        """Create or change a topic on brokers, by name and address (raises ``RequestTimeoutError`` without a route)."""
        command = Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, _header(name, settings))
        for address in masters.values():
            await self._calls.ask_broker(address, command)
        await self._wait_routed(name, set(masters))

    async def _wait_routed(self, name: str, brokers: set[str]) -> None:
        clock = self._session.clock
        try:
            async with clock.timeout(self._calls.timeout_ms):
                while not await self._is_routed(name, brokers):
                    await clock.sleep(ROUTE_PAUSE_MS)
        except TimeoutError:
            raise RequestTimeoutError(f"topic {name} has no route after {self._calls.timeout_ms} ms") from None

    async def _is_routed(self, name: str, brokers: set[str]) -> bool:
        try:
            return brokers <= {share.broker_name for share in (await self._calls.route(name)).shares}
        except RouteNotFoundError:
            return False

    async def delete(self, name: str) -> None:
        """Delete a topic on its brokers and on every name server."""
        command = Command.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeletedTopicHeader(topic=name))
        for address in (await self._calls.masters_of_topic(name)).values():
            await self._calls.ask_broker(address, command)
        await self._calls.ask_nameservers(RequestCode.DELETE_TOPIC_IN_NAMESRV, TopicHeader(topic=name))
        self._session.routes.discard(name)


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
