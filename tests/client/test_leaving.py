"""After ``async with`` nothing is left: no task, no thread, no socket, on both loops and under ``asyncio.run``."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest
import uvloop
from census import NOTHING, take_census
from inbox import Inbox
from interop.servers import RocketletServer
from subscribed import PUSH_FROM_FIRST, pull_consumer

from rocketlet.client import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Session,
    TransactionProducer,
    TransactionState,
)

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketletServer]:
    """Return a server in another process, so that all sockets of this one are the client's."""
    with RocketletServer(tmp_path_factory.mktemp("leaving") / "store", {}) as started:
        yield started


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """Return what ``asyncio.run`` uses, with either loop."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as running:
        yield running


class Listener:
    """Commits what is sent in transactions; receives in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.received = asyncio.Event()

    def execute(self, _message: Message, _argument: object) -> TransactionState:
        """Take the local transaction for done."""
        return TransactionState.COMMIT

    def check(self, _message: ReceivedMessage) -> TransactionState:
        """Say the same when asked."""
        return TransactionState.COMMIT

    def receive(self, _messages: list[ReceivedMessage]) -> None:
        """Take messages, not on the loop."""
        self._loop.call_soon_threadsafe(self.received.set)


@pytest.fixture(autouse=True)
def no_loop_of_earlier_tests() -> None:
    """Let go of a loop that one has left: its sockets would go in the middle of a test."""
    asyncio.set_event_loop(None)


@contextlib.asynccontextmanager
async def everything(namesrv: str) -> AsyncGenerator[Inbox]:
    """Run producers, consumers and an administrator that have all been at work; a session for two of them."""
    inbox, listener = Inbox(), Listener()
    async with contextlib.AsyncExitStack() as stack:
        producer = await stack.enter_async_context(TransactionProducer("leaving-tg", namesrv, listener=listener))
        await producer.send_in_transaction(Message("Leaving", b"0"))
        session = await stack.enter_async_context(Session(namesrv))
        shared = await stack.enter_async_context(Producer("leaving-pg", session=session))
        await shared.send(Message("Leaving", b"1"))
        for number, receive in enumerate((inbox, listener.receive)):
            consumer = PushConsumer(f"leaving-{number}", session=session, settings=PUSH_FROM_FIRST)
            consumer.subscribe("Leaving", "*", receive)
            await stack.enter_async_context(consumer)
        pulling = await stack.enter_async_context(pull_consumer(namesrv, group="leaving-pull", topic="Leaving"))
        admin = await stack.enter_async_context(Admin(namesrv))
        assert len(await admin.queues("Leaving")) == 4
        await inbox.wait_for(2)
        await listener.received.wait()
        assert await pulling.poll()
        yield inbox


def test_everything_can_be_left_and_entered_again(server: RocketletServer, runner: asyncio.Runner) -> None:
    """Five times in one loop: each time no task, thread or socket is left."""

    async def run() -> None:
        before = take_census()
        for _ in range(5):
            async with everything(server.namesrv):
                assert take_census().since(before).sockets
            assert take_census().since(before) == NOTHING

    runner.run(run())


def test_error_inside_the_block_leaves_nothing(server: RocketletServer, runner: asyncio.Runner) -> None:
    """The error comes out as it is."""

    async def run() -> None:
        before = take_census()
        with pytest.raises(KeyError, match="mine"):
            async with everything(server.namesrv):
                raise KeyError("mine")
        assert take_census().since(before) == NOTHING

    runner.run(run())


def test_cancelled_block_leaves_nothing(server: RocketletServer, runner: asyncio.Runner) -> None:
    """Who is cancelled while messages flow gets away as well."""

    async def work(inbox_ready: asyncio.Event) -> None:
        async with everything(server.namesrv):
            inbox_ready.set()
            await asyncio.Event().wait()

    async def run() -> None:
        before, ready = take_census(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work(ready))
            await ready.wait()
            working.cancel()
        assert take_census().since(before) == NOTHING

    runner.run(run())


def test_run_leaves_nothing_behind(server: RocketletServer) -> None:
    """Neither ``asyncio.run`` nor ``uvloop.run`` finds anything to complain of, and the process is as before."""

    async def run() -> None:
        async with everything(server.namesrv):
            pass

    before = take_census()
    asyncio.run(run())
    uvloop.run(run())
    assert take_census().since(before) == NOTHING
