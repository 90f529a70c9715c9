"""Consumer groups and their members (requests 200, 201, 352, 207, 203, 38).

A group is made by its first consumer unless brokers are told not to (``autoCreateSubscriptionGroup``).
"""

from ...common.errors import ConfigError
from ...common.names import client_group_remark
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import ConsumerList
from ...remoting.bodies.group import ConsumerConnections, SubscriptionGroupTable
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.admin import DeleteGroupHeader
from ...remoting.headers.client import ConsumerGroupHeader
from .admin_calls import AdminCalls
from .admin_values import GroupConnection, GroupSettings, read_group, write_group

_NOBODY_CODES = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)


class GroupAdmin(AdminCalls):
    """Groups."""

    async def groups(self, cluster: str | None = None) -> list[str]:
        """Return the names of all groups that brokers of the cluster know."""
        names: set[str] = set()
        for address in (await self._masters(cluster)).values():
            names |= (await self._group_table(address)).subscription_group_table.keys()
        return sorted(names)

    async def group(self, name: str, cluster: str | None = None) -> dict[str, GroupSettings]:
        """Return the settings of a group on each broker that has it; none where nobody has consumed yet."""
        found: dict[str, GroupSettings] = {}
        for broker_name, address in (await self._masters(cluster)).items():
            config = (await self._group_table(address)).subscription_group_table.get(name)
            if config is not None:
                found[broker_name] = read_group(config)
        return found

    async def create_group(
        self, name: str, settings: GroupSettings | None = None, *, cluster: str | None = None
    ) -> None:
        """Create or change a group on the masters of a cluster.

        Raises:
            ConfigError: the name is not allowed.
            ValueError: there is no such cluster.
            ResponseError: a broker refused it.
        """
        remark = client_group_remark(name)
        if remark is not None:
            raise ConfigError(remark, key="group")
        body = encode_body(write_group(name, settings or GroupSettings()))
        for address in (await self._masters(cluster)).values():
            await self._ask_broker(address, Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))

    async def delete_group(self, name: str, *, with_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a group on the masters of a cluster; its retry and dead letter topics stay.

        Raises:
            ResponseError: a broker refused it.
        """
        header = DeleteGroupHeader(group_name=name, clean_offset=with_offsets, remove_offset=with_offsets)
        for address in (await self._masters(cluster)).values():
            await self._ask_broker(address, Command.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))

    async def members(self, group: str, cluster: str | None = None) -> tuple[GroupConnection, ...]:
        """Return who consumes in a group now; nobody is no error.

        One client id at two addresses is a mistake: both take the same queues and leave others to nobody.
        """
        found: set[GroupConnection] = set()
        for address in (await self._masters(cluster)).values():
            found |= await self._members_at(address, group)
        return tuple(sorted(found))

    async def _members_at(self, address: str, group: str) -> set[GroupConnection]:
        header = ConsumerGroupHeader(consumer_group=group)
        command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        expected = (*_NOBODY_CODES, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._ask_broker(address, command, expected)
        if answer.code == ResponseCode.SUCCESS:
            connections = decode_answer(ConsumerConnections, answer.body).connection_set
            return {
                GroupConnection(each.client_id, each.client_addr, each.language, each.version) for each in connections
            }
        if answer.code in _NOBODY_CODES:
            return set()
        return {GroupConnection(client_id) for client_id in await self._ids_at(address, header)}

    async def _ids_at(self, address: str, header: ConsumerGroupHeader) -> list[str]:
        command = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        answer = await self._ask_broker(address, command, _NOBODY_CODES)
        return decode_answer(ConsumerList, answer.body).consumer_id_list if answer.code == ResponseCode.SUCCESS else []

    async def _group_table(self, address: str) -> SubscriptionGroupTable:
        answer = await self._ask_broker(address, Command.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return decode_answer(SubscriptionGroupTable, answer.body)
