"""Who consumes in a group now, and what (requests 203, 38).

A broker that does not know 203 tells client ids alone (38). Nobody is no error: brokers answer 206, older ones 1.
"""

from collections.abc import Iterable

from ...common.codes import ResponseCode
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.client import ConsumerConnections, ConsumerList
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import ConsumerGroupHeader
from ..session.session import Session
from .admin_calls import AdminCalls
from .admin_values import ConsumerGroup, GroupConnection

_NOBODY_CODES = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)


class GroupConnections:
    """Asks brokers for the members of groups."""

    def __init__(self, session: Session, calls: AdminCalls) -> None:
        self._session = session
        self._calls = calls

    async def members(self, group: str, cluster: str | None) -> tuple[GroupConnection, ...]:
        """Return who consumes in a group now; nobody is no error."""
        found: set[GroupConnection] = set()
        for address in (await self._calls.masters(cluster)).values():
            found |= await self._members_at(address, group)
        return tuple(sorted(found))

    async def consumer_group(self, group: str, addresses: Iterable[str]) -> ConsumerGroup:
        """Return the members of a group at some brokers, how they consume, and what they have subscribed to."""
        members: set[GroupConnection] = set()
        subscriptions: dict[str, str] = {}
        consumes, model = "", ""
        for told in await self._calls.ask_each(addresses, lambda address: self._told_at(address, group)):
            if isinstance(told, set):
                members |= told
                continue
            members |= _members_of(told)
            consumes = str(told.consume_type or consumes)
            model = str(told.message_model or model)
            for topic, data in told.subscription_table.items():
                subscriptions[self._session.namespace.strip(topic)] = data.sub_string
        return ConsumerGroup(tuple(sorted(members)), consumes, model, dict(sorted(subscriptions.items())))

    async def _told_at(self, address: str, group: str) -> ConsumerConnections | set[GroupConnection]:
        """Return what a broker tells, the members alone when it knows no more."""
        header = ConsumerGroupHeader(consumer_group=group)
        told = await self._connections_at(address, header)
        if told is not None:
            return told
        return {GroupConnection(client_id) for client_id in await self._ids_at(address, header)}

    async def _connections_at(self, address: str, header: ConsumerGroupHeader) -> ConsumerConnections | None:
        """Return what a broker tells, empty when nobody is there, and None when it does not know the request."""
        command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        expected = (*_NOBODY_CODES, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._calls.ask_broker(address, command, expected)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if answer.code in _NOBODY_CODES:
            return ConsumerConnections()
        return decode_answer(ConsumerConnections, answer.body)

    async def _members_at(self, address: str, group: str) -> set[GroupConnection]:
        told = await self._told_at(address, group)
        return told if isinstance(told, set) else _members_of(told)

    async def _ids_at(self, address: str, header: ConsumerGroupHeader) -> list[str]:
        command = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        answer = await self._calls.ask_broker(address, command, _NOBODY_CODES)
        return decode_answer(ConsumerList, answer.body).consumer_id_list if answer.code == ResponseCode.SUCCESS else []


def _members_of(told: ConsumerConnections) -> set[GroupConnection]:
    return {
        GroupConnection(each.client_id, each.client_addr, each.language, each.version) for each in told.connection_set
    }
