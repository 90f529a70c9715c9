"""Calls of ``Admin``: which servers are asked, and what an answer must be.

    asked                    used for
    every name server        what only they know: a topic's deletion, write permissions
    one name server          routes, lists
    masters of a cluster     topics and groups, which each broker keeps for itself
    a queue's master         offsets and messages; where it is gone, a slave is asked for them

An answer with another code than the expected ones is a ``ResponseError``, no answer a ``RemotingError``. A broker that
does not know a request at all answers 3, ``request type … not supported``.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ...common.codes import ResponseCode
from ...common.errors import ResponseError, RouteNotFoundError
from ...common.message import MessageQueue
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.route import MASTER_ID, ClusterInfo
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ..session.lifecycle import Lifecycle
from ..session.routes import TopicRoute, choose_address, publish_queues, subscribe_queues
from ..session.session import Session
from .admin_values import BrokerNode

ADMIN_TIMEOUT_MS = 5_000  # Java's timeoutMillis of DefaultMQAdminExt
AnswerT = TypeVar("AnswerT")


class AdminCalls:
    """Calls to the servers of one session."""

    def __init__(self, session: Session, lifecycle: Lifecycle, timeout_ms: int = ADMIN_TIMEOUT_MS) -> None:
        self.timeout_ms = timeout_ms
        self._session = session
        self._lifecycle = lifecycle

    async def brokers(self, cluster: str | None = None) -> tuple[BrokerNode, ...]:
        """Return the brokers of all clusters, or of one, by cluster and name.

        Raises:
            ValueError: there is no such cluster.
        """
        info = decode_answer(ClusterInfo, (await self.ask_nameserver(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise ValueError(
                f"there is no cluster {cluster}, but {', '.join(sorted(info.cluster_addr_table)) or 'none'}"
            )
        return tuple(
            BrokerNode(each, name, dict(sorted(info.broker_addr_table[name].broker_addrs.items())))
            for each, names in sorted(info.cluster_addr_table.items())
            if cluster in (None, each)
            for name in sorted(names)
            if name in info.broker_addr_table
        )

    # name servers

    async def ask_nameserver(self, code: RequestCode, header: msgspec.Struct | None = None) -> Command:
        """Ask one of them; return an answer that is a success."""
        self._lifecycle.check()
        answer = await self._session.ask_nameserver(Command.request(code, header), self.timeout_ms)
        return checked(answer, "a name server", code)

    async def ask_nameservers(
        self, code: RequestCode, header: msgspec.Struct | None = None, *, body: bytes = b""
    ) -> dict[str, Command]:
        """Ask all of them, and see that all answers are successes; return them by address."""
        self._lifecycle.check()
        asked = self._session.nameserver_addresses
        answers = await self._session.ask_nameservers(lambda: Command.request(code, header, body), self.timeout_ms)
        return {address: checked(answer, address, code) for address, answer in zip(asked, answers, strict=True)}

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic as it is now."""
        self._lifecycle.check()
        await self._session.refresh(topic, self.timeout_ms)
        return await self._session.route(topic, self.timeout_ms)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read or written."""
        route = await self.route(topic)
        return tuple(sorted({*subscribe_queues(topic, route), *publish_queues(topic, route)}))

    # brokers

    async def masters(self, cluster: str | None, names: Collection[str] | None = None) -> dict[str, str]:
        """Return the addresses of masters by broker name: of a cluster, or of the brokers named.

        Raises:
            RouteNotFoundError: there is none.
            ValueError: a broker is not there, or has no master.
        """
        nodes = await self.brokers(cluster)
        masters = {node.name: node.addresses[MASTER_ID] for node in nodes if MASTER_ID in node.addresses}
        if names is not None:
            missing = sorted(set(names) - masters.keys())
            if missing:
                raise ValueError(f"there is no master of the broker {missing[0]}, but of {', '.join(sorted(masters))}")
            masters = {name: masters[name] for name in sorted(names)}
        if not masters:
            raise RouteNotFoundError("no name server knows a master of any broker")
        return masters

    async def node(self, name: str) -> BrokerNode:
        """Return the broker group of a name.

        Raises:
            ValueError: there is none.
        """
        nodes = {node.name: node for node in await self.brokers(None)}
        if name not in nodes:
            raise ValueError(f"there is no broker {name}, but {', '.join(sorted(nodes)) or 'none at all'}")
        return nodes[name]

    async def address_of(self, name: str, broker_id: int) -> str:
        """Return the address of a broker.

        Raises:
            ValueError: there is none.
        """
        if broker_id == MASTER_ID:
            return (await self.masters(None, [name]))[name]
        addresses = (await self.node(name)).addresses
        if broker_id not in addresses:
            raise ValueError(f"broker {name} has no id {broker_id}, but {', '.join(map(str, addresses))}")
        return addresses[broker_id]

    async def masters_of_topic(self, topic: str) -> dict[str, str]:
        """Return the addresses of the masters that have a topic, by broker name."""
        route = await self.route(topic)
        return {name: ids[MASTER_ID] for name, ids in route.brokers.items() if MASTER_ID in ids}

    async def readers_of_topic(self, topic: str) -> dict[str, str]:
        """Return where messages of a topic are read, by broker name: at masters, and slaves of those that are gone."""
        return readers_of((await self.route(topic)).brokers)

    async def ask_broker(
        self, address: str, command: Command, expected: Sequence[int] = (), timeout_ms: int = 0
    ) -> Command:
        """Return an answer that is a success, or of another expected code; a time limit of 0 is the usual one."""
        self._lifecycle.check()
        answer = await self._session.call(address, command, timeout_ms or self.timeout_ms)
        return checked(answer, address, command.code, expected)

    async def ask_each(
        self, addresses: Iterable[str], ask: Callable[[str], Coroutine[Any, Any, AnswerT]]
    ) -> list[AnswerT]:
        """Ask several brokers side by side; return their answers in the order of the addresses."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(address)) for address in addresses]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return [task.result() for task in tasks]


def readers_of(brokers: Mapping[str, Mapping[int, str]]) -> dict[str, str]:
    """Return where groups of brokers are asked what slaves know as well: at the master, else at a slave."""
    found = {name: choose_address(ids, MASTER_ID) for name, ids in brokers.items()}
    return {name: chosen.address for name, chosen in found.items() if chosen is not None}


def checked(answer: Command, server: str, code: int, expected: Sequence[int] = ()) -> Command:
    """Return what a server answered to a request, when it is a success, or of another expected code.

    Raises:
        ResponseError: it is another.
    """
    if answer.code != ResponseCode.SUCCESS and answer.code not in expected:
        raise ResponseError(answer.code, answer.remark, server, RequestCode(code).name)
    return answer
