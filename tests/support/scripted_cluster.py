"""A cluster for the tests of the client: real sockets and frames, answers as a test wants them.

A name server and any number of brokers. Each server remembers what it was asked and answers from a table by request
code; what is not in the table is answered with an empty success.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import MessageQueue
from rocketlet.common.names import PERM_READ, PERM_WRITE
from rocketlet.common.outcome import Outcome
from rocketlet.remoting.bodies.body import decode_body, encode_body
from rocketlet.remoting.bodies.client import ConsumerList, HeartbeatData
from rocketlet.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.namesrv import RouteHeader
from rocketlet.remoting.headers.offset import OffsetReply
from rocketlet.remoting.headers.send import SendReply, decode_send_header
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.server import RemotingServer

Answer = Callable[[Command], Reply]

READ_WRITE = PERM_READ | PERM_WRITE
QUEUE = MessageQueue("T", "broker-a", 0)
RETRY_QUEUE = MessageQueue("%RETRY%g", "broker-a", 0)
OFFSET_ID = "7F00000100002A9F0000000000000000"


class ScriptedServer:
    """Answers by code from a table, and remembers what it was asked."""

    def __init__(self, name: str, answers: dict[int, Answer] | None = None) -> None:
        self.name = name
        self.answers = dict(answers or {})
        self.requests: list[Command] = []
        self.connections: list[Connection] = []
        self._asked = asyncio.Event()
        self._server = RemotingServer("127.0.0.1", 0, RequestHandlers(fallback=self._serve), LoopClock())

    @property
    def address(self) -> str:
        """Where it listens, or listened."""
        host, port = self._server.address
        return f"{host}:{port}"

    async def listen(self) -> None:
        """Listen until it is closed."""
        await self._server.__aenter__()

    async def close(self) -> None:
        """Listen no more; a second call does nothing."""
        await self._server.__aexit__(None, None, None)

    def asked(self, code: int) -> list[Command]:
        """Return the requests of one code so far."""
        return [request for request in self.requests if request.code == code]

    async def wait_asked(self, code: int, times: int = 1) -> list[Command]:
        """Return the requests of one code once there are so many."""
        while len(self.asked(code)) < times:
            self._asked.clear()
            await self._asked.wait()
        return self.asked(code)

    def _serve(self, command: Command, connection: Connection) -> Reply:
        if connection not in self.connections:
            self.connections.append(connection)
        self.requests.append(command)
        self._asked.set()
        answer = self.answers.get(command.code)
        return Command.response(ResponseCode.SUCCESS) if answer is None else answer(command)


@asynccontextmanager
async def _open(server: ScriptedServer) -> AsyncGenerator[ScriptedServer]:
    await server.listen()
    try:
        yield server
    finally:
        await server.close()


def scripted_server(name: str) -> AbstractAsyncContextManager[ScriptedServer]:
    """Open a server that answers everything with an empty success."""
    return _open(ScriptedServer(name))


class ScriptedCluster:
    """A name server and brokers; ``routes`` says which broker has how many queues of a topic.

    Routes name masters, slaves by id 1, and the masters in ``gone`` not any more.
    """

    def __init__(self) -> None:
        self.nameserver = ScriptedServer("name server", {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._answer_route})
        self.brokers: dict[str, ScriptedServer] = {}
        self.slaves: dict[str, ScriptedServer] = {}
        self.gone: set[str] = set()
        self.routes: dict[str, dict[str, int]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start the name server."""
        await self._stack.enter_async_context(_open(self.nameserver))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every server."""
        await self._stack.aclose()

    async def add_broker(self, name: str, answers: dict[int, Answer] | None = None) -> ScriptedServer:
        """Start a broker: it stores what it is sent, has offset 0 and no message for all, knows who sent heartbeats.

        Requests of the codes in ``answers`` it answers as these say.
        """
        self.brokers[name] = await self._add(name, {RequestCode.SEND_MESSAGE_V2: stored, **(answers or {})})
        return self.brokers[name]

    async def add_slave(self, name: str, answers: dict[int, Answer] | None = None) -> ScriptedServer:
        """Start the slave of a broker, which answers as a broker does."""
        self.slaves[name] = await self._add(f"{name} as slave", answers or {})
        return self.slaves[name]

    async def _add(self, name: str, answers: dict[int, Answer]) -> ScriptedServer:
        broker = ScriptedServer(name, {RequestCode.PULL_MESSAGE: silent})
        broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: offset_of(0)
        broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda _: members_in(broker)
        broker.answers |= answers
        return await self._stack.enter_async_context(_open(broker))

    def route_of(self, topic: str) -> TopicRouteData:
        """Return the route of a topic; a broker has its master's address unless it has ended."""
        shares = self.routes[topic]
        return TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=name, cluster="C", broker_addrs=self._addresses_of(name)) for name in shares
            ],
            queue_datas=[
                QueueData(broker_name=name, perm=READ_WRITE, read_queue_nums=count, write_queue_nums=count)
                for name, count in shares.items()
            ],
        )

    def _addresses_of(self, name: str) -> dict[int, str]:
        master = {} if name in self.gone else {0: self.brokers[name].address}
        return master | ({1: self.slaves[name].address} if name in self.slaves else {})

    def _answer_route(self, command: Command) -> Command:
        topic = decode_header(RouteHeader, command).topic
        if topic not in self.routes:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info for the topic: {topic}")
        return Command.response(ResponseCode.SUCCESS, body=encode_body(self.route_of(topic)))


def stored(command: Command, code: int = ResponseCode.SUCCESS) -> Command:
    """Answer a send: it was stored in the queue that was asked for."""
    header = decode_send_header(command)
    return Command.response(code, ext=SendReply(msg_id=OFFSET_ID, queue_id=header.queue_id, queue_offset=7))


def offset_of(queue_offset: int) -> Command:
    """Answer with an offset."""
    return Command.response(ResponseCode.SUCCESS, ext=OffsetReply(queue_offset=queue_offset))


def refused(code: int, remark: str = "as the test wants it") -> Answer:
    """Return an answer with an error code."""
    return lambda _: Command.response(code, remark)


def silent(command: Command) -> Outcome[Command]:
    """Leave a request without an answer."""
    return Outcome[Command]()


def members_in(broker: ScriptedServer) -> Command:
    """Answer with the client ids of all heartbeats."""
    beats = [decode_body(HeartbeatData, beat.body) for beat in broker.asked(RequestCode.HEART_BEAT)]
    ids = dict.fromkeys(beat.client_id for beat in beats if beat.consumer_data_set)
    return Command.response(ResponseCode.SUCCESS, body=encode_body(ConsumerList(consumer_id_list=list(ids))))
