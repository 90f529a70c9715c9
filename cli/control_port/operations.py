"""What the control port does with the test fixture.

Rules

    1. Each operation is a method: it takes what its route says, and returns what is answered, nothing for an empty
       answer. It raises what the fixture raises; ``app.py`` makes a status of that.
    2. What starts, stops or empties something has its turn alone, and is done to its end once begun, also when nobody
       waits for it any more. All else may be cancelled at any time.
    3. What is counted up here, faults and partitions, ends with the test; numbers are not given twice.
"""

import asyncio
import itertools
import json as json_text
import logging
import pathlib
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast

from msgspec import UNSET, UnsetType

from ...common.codes import ResponseCode
from ...common.errors import ConfigError, nearest
from ...remoting.transport.event_loop import LoopClock
from ...testing.broker_thread import RocketmqBroker
from ...testing.faults.hits import ActiveFault
from ...testing.faults.request_faults import Fault, InjectedFault
from ...testing.own_clients import Addressed, MessageParts, make_message
from ...testing.views.sent_messages import ExpectedMessage
from ...testing.views.unknown_names import UnknownNameError
from . import answers, requests

T = TypeVar("T")
_log = logging.getLogger(__name__)
_OUTSIDE_OF_TESTS = "topic"
"""What names begin with that are made up while no test runs."""


class ControlOperations:
    """The operations over one fixture; lives on the loop of the server of HTTP, not on the fixture's."""

    def __init__(self, broker: RocketmqBroker, version: str) -> None:
        self._broker = broker
        self._version = version
        self._turn = asyncio.Lock()
        self._has_test = False
        self._numbers = itertools.count(1)
        self._brokers = {str(broker.servers.identity): broker}
        self._faults: dict[int, ActiveFault] = {}
        self._partitions: dict[int, ExitStack] = {}

    def __repr__(self) -> str:
        return f"<ControlOperations of {self._broker!r}>"

    async def wait_end(self) -> None:
        """Wait until what has its turn is done."""
        async with self._turn:
            pass

    # --- tests

    async def addresses(self) -> answers.Addresses:
        """Say what is controlled."""
        return self._describe(self._broker)

    def _describe(self, broker: RocketmqBroker) -> answers.Addresses:
        return answers.Addresses(
            name=str(broker.servers.identity),
            nameserver=broker.nameserver,
            broker=broker.address,
            grpc=broker.grpc_address,
            version=self._version,
        )

    def _at(self, name: str | None) -> RocketmqBroker:
        """Return a broker (raises ``UnknownNameError``)."""
        if name is None:
            return self._broker
        if name not in self._brokers:
            raise UnknownNameError(f"there is no broker {name!r}, these are: {', '.join(self._brokers)}")
        return self._brokers[name]

    async def begin_test(self, asked: requests.AskedTest) -> answers.BegunTest:
        """Forget what was asked before, and end a test that nobody has ended."""

        def begin() -> list[str]:
            left: list[str] = []
            if self._has_test:
                try:
                    self._end_test()
                except (AssertionError, ExceptionGroup) as error:
                    left = [*describe_failures(error)]
            self._broker.prefix, self._has_test = asked.name, True
            self._broker.begin_test()
            return left

        return answers.BegunTest(name=asked.name, left_behind=await self._alone(begin))

    async def end_test(self) -> None:
        """Undo what was injected, stopped and added (raises what has gone wrong unseen)."""
        await self._alone(self._end_test)

    def _end_test(self) -> None:
        self._broker.prefix, self._has_test = _OUTSIDE_OF_TESTS, False
        self._faults.clear()
        self._brokers = {str(self._broker.servers.identity): self._broker}
        with ExitStack() as ending:
            ending.callback(self._broker.end_test)
            for partition in self._partitions.values():
                ending.push(partition)
            self._partitions.clear()

    # --- topics and messages

    async def create_topic(self, asked: requests.AskedTopic) -> answers.Named:
        """Create a topic."""
        return answers.Named(name=await self._at(asked.broker).create_topic(asked.name, asked.queues))

    async def create_group(self, asked: requests.AskedGroup) -> answers.Named:
        """Create a consumer group."""
        return answers.Named(name=await self._at(asked.broker).create_group(asked.name))

    async def send(self, asked: list[requests.SentMessage]) -> list[answers.SentPlace]:
        """Send messages in order; nothing is sent if one of them is none."""
        messages: list[Addressed] = []
        for number, one in enumerate(asked):
            with _naming(f"$[{number}]"):
                messages.append((_message_of(one), one.queue))
        _ = self._broker.servers.broker  # a producer would try for a while
        return [*map(answers.SentPlace.of, await self._broker.publish(messages))] if messages else []

    async def messages(self, asked: requests.AskedMessages) -> list[answers.StoredMessage]:
        """Return what is stored in a topic."""
        found = await asyncio.to_thread(
            self._at(asked.broker).messages, asked.topic, tag=asked.tag, key=asked.key, group=asked.group
        )
        return [*map(answers.StoredMessage.of, found)]

    async def lag(self, asked: requests.OfGroup) -> answers.Lag:
        """Return how many messages a group is not done with."""
        return answers.Lag.of(await asyncio.to_thread(self._at(asked.broker).lag, asked.group))

    async def in_flight(self, asked: requests.OfGroup) -> list[answers.StoredMessage]:
        """Return what members of a group were given and are not done with."""
        return [*map(answers.StoredMessage.of, await asyncio.to_thread(self._at(asked.broker).in_flight, asked.group))]

    async def dead_letters(self, asked: requests.OfGroup) -> list[answers.StoredMessage]:
        """Return what a group has given up."""
        return [
            *map(answers.StoredMessage.of, await asyncio.to_thread(self._at(asked.broker).dead_letters, asked.group))
        ]

    async def transactions(self, asked: requests.AtBroker) -> list[answers.Transaction]:
        """Return the transactions that nobody has decided about."""
        return [*map(answers.Transaction.of, await asyncio.to_thread(self._at(asked.broker).transactions))]

    async def seen_requests(self, asked: requests.AskedRequests) -> answers.SeenRequests:
        """Return what clients have asked."""
        found = await asyncio.to_thread(self._at(asked.broker).requests, asked.on, asked.topic, asked.group)
        return answers.SeenRequests(requests=[*map(answers.SeenRequest.of, found)], forgotten=found.forgotten)

    async def expect(self, asked: requests.ExpectedSending) -> None:
        """Raise unless a topic has such a message."""
        expected = ExpectedMessage()
        if asked.json is not UNSET:
            expected["json"] = asked.json
        if not isinstance(asked.body, UnsetType):
            expected["body"] = asked.body
        if not isinstance(asked.body_base64, UnsetType):
            if "body" in expected:
                raise ValueError("a message has one body: body or body_base64")
            expected["body"] = asked.body_base64
        if not isinstance(asked.tags, UnsetType):
            expected["tags"] = asked.tags
        if not isinstance(asked.keys, UnsetType):
            expected["keys"] = asked.keys
        if not isinstance(asked.properties, UnsetType):
            expected["properties"] = asked.properties
        await asyncio.to_thread(self._at(asked.broker).assert_sent, asked.topic, times=asked.times, **expected)

    # --- waiting

    async def wait_for_messages(self, asked: requests.WaitForMessages) -> list[answers.StoredMessage]:
        """Return the messages of a topic when there are enough."""
        found = await self._at(asked.broker).arrived(
            asked.topic, asked.count, tag=asked.tag, key=asked.key, timeout=asked.timeout
        )
        return [*map(answers.StoredMessage.of, found)]

    async def wait_for_group(self, asked: requests.WaitForGroup) -> None:
        """Return when a consumer group is done with all that it subscribes to."""
        await self._at(asked.broker).consumed(asked.group, timeout=asked.timeout)

    async def wait_for_idle(self, asked: requests.WaitForIdle) -> None:
        """Return when each consumer group that has members is done."""
        await self._at(asked.broker).idle(timeout=asked.timeout)

    # --- time

    async def clock(self) -> answers.ClockState:
        """Return what the clock shows."""
        return await asyncio.to_thread(answers.ClockState.of, self._broker.clock)

    async def advance(self, asked: requests.AskedSpan) -> answers.ClockState:
        """Move time on."""
        async with self._turn:
            await self._broker.clock.elapse(
                days=asked.days,
                hours=asked.hours,
                minutes=asked.minutes,
                seconds=asked.seconds,
                milliseconds=asked.milliseconds,
            )
        return await self.clock()

    async def freeze(self, _asked: requests.AskedNothing) -> answers.ClockState:
        """Let time stand still."""
        await self._alone(self._broker.clock.freeze)
        return await self.clock()

    async def resume(self, _asked: requests.AskedNothing) -> answers.ClockState:
        """Let time go on."""
        await self._alone(self._broker.clock.resume)
        return await self.clock()

    # --- faults

    async def add_fault(self, asked: requests.AskedFault) -> answers.FaultState:
        """Let something go wrong."""
        fault = await asyncio.to_thread(self._add_fault, asked)
        number = next(self._numbers)
        self._faults[number] = fault
        return _state_of(number, fault)

    def _add_fault(self, asked: requests.AskedFault) -> ActiveFault:
        faults = self._at(asked.broker).faults
        if asked.disk is not None:
            _check_disk_fault(asked)
            if asked.disk == "slow":
                return faults.slow_disk(asked.delay_ms, optional=asked.optional)
            return (faults.disk_full if asked.disk == "full" else faults.failing_flush)(optional=asked.optional)
        return faults.add(
            asked.on,
            answer=_answer_of(asked.answer),
            remark=asked.remark,
            delay_ms=asked.delay_ms,
            topic=asked.topic,
            group=asked.group,
            client=asked.client,
            times=asked.times,
            after=asked.after,
            optional=asked.optional,
        )

    async def faults(self) -> list[answers.FaultState]:
        """Return the faults that were added."""
        return [_state_of(number, fault) for number, fault in self._faults.items()]

    async def fault(self, number: int) -> answers.FaultState:
        """Return one of them."""
        return _state_of(number, _find("fault", self._faults, number))

    async def wait_for_hits(self, number: int, asked: requests.WaitForHits) -> answers.FaultState:
        """Return when a fault was met so often."""
        fault = _find("fault", self._faults, number)
        try:
            async with LoopClock().timeout(round(asked.timeout * 1_000)):
                await fault.met(asked.hits)
        except TimeoutError:
            met = f"{fault.hits} times, not {asked.hits}"
            raise TimeoutError(f"fault {number} was met {met}, in {asked.timeout:g} s: {fault}") from None
        return _state_of(number, fault)

    async def remove_fault(self, number: int) -> answers.FaultState:
        """End a fault; that nothing has met it is told at the end of the test."""
        fault = _find("fault", self._faults, number)
        del self._faults[number]
        await asyncio.to_thread(fault.remove)
        return _state_of(number, fault)

    # --- servers

    async def stop_broker(self, asked: requests.AtBroker) -> None:
        """Stop the broker cleanly."""
        await self._alone(self._at(asked.broker).stop)

    async def kill_broker(self, asked: requests.AtBroker) -> None:
        """End the broker as SIGKILL does."""
        await self._alone(self._at(asked.broker).kill)

    async def restart_broker(self, asked: requests.AtBroker) -> None:
        """Start the broker again."""
        await self._alone(self._at(asked.broker).restart)

    async def reset_broker(self, asked: requests.AtBroker) -> None:
        """Empty the broker."""
        await self._alone(self._at(asked.broker).reset)

    async def stop_nameserver(self, _asked: requests.AskedNothing) -> None:
        """Stop the name server."""
        await self._alone(self._broker.stop_nameserver)

    async def start_nameserver(self, _asked: requests.AskedNothing) -> None:
        """Start the name server."""
        await self._alone(self._broker.start_nameserver)

    async def add_broker(self, asked: requests.AskedBroker) -> answers.Addresses:
        """Start one more broker."""

        def add() -> RocketmqBroker:
            try:
                added = self._broker.add_broker(asked.name, asked.settings)
            except ConfigError as error:
                raise ValueError(f"{error} - at `$.settings`") from error
            self._brokers[str(added.servers.identity)] = added
            return added

        return self._describe(await self._alone(add))

    async def cut_off(self, asked: requests.AskedPartition) -> answers.Cut:
        """Let nothing pass between a client and the broker."""

        def cut() -> int:
            with ExitStack() as stack:
                stack.enter_context(self._at(asked.broker).partition(asked.client))
                number = next(self._numbers)
                self._partitions[number] = stack.pop_all()
            return number

        return answers.Cut(id=await self._alone(cut), client=asked.client)

    async def heal(self, number: int) -> None:
        """Let pass what was held back."""

        def end() -> None:
            _find("partition", self._partitions, number)
            self._partitions.pop(number).close()

        await self._alone(end)

    # --- snapshots

    @property
    def directory(self) -> pathlib.Path:
        """Where temporary directories are."""
        return self._broker.store.parent

    async def save_snapshot(self, path: pathlib.Path) -> None:
        """Write a snapshot into a file."""
        await self._alone(lambda: self._broker.snapshot(path))

    async def restore_snapshot(self, path: pathlib.Path) -> None:
        """Put the broker into the state of the snapshot in a file."""
        await self._alone(lambda: self._broker.restore(path))

    async def _alone(self, work: Callable[[], T]) -> T:
        """Do something in a thread when nothing else has its turn, to its end."""
        async with self._turn:
            done = asyncio.get_running_loop().run_in_executor(None, work)
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                await asyncio.wait([done])  # whoever comes next finds it done
                if (error := done.exception()) is not None:
                    _log.info("nobody waits for an answer any more: %s", error)
                raise
            return done.result()


def describe_failures(error: BaseException) -> Iterator[str]:
    """Yield what has gone wrong, a text for each of a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from describe_failures(each)
    elif isinstance(error, AssertionError):
        yield str(error)
    else:
        yield "\n".join([f"the broker has failed: {error!r}", *getattr(error, "__notes__", ())])


@contextmanager
def _naming(place: str) -> Generator[None]:
    """Have the errors of a part of a request say which part it is."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error} - at `{place}`") from error


def _message_of(sent: requests.SentMessage) -> Any:
    bodies = [each for each in (sent.body, sent.body_base64, sent.json) if each is not UNSET]
    if len(bodies) != 1:
        raise ValueError("a message has one of body, body_base64 and json")
    [body] = bodies
    text = json_text.dumps(body) if sent.json is not UNSET else body
    parts = MessageParts(
        tags=sent.tags,
        keys=sent.keys,
        properties=sent.properties,
        delay_level=sent.delay_level,
        delay_ms=sent.delay_ms,
    )
    message = make_message(sent.topic, text, None, parts)
    message.to_properties()  # refuses what cannot be sent, before anything is
    return message


def _answer_of(name: str | int | None) -> int | Fault | None:
    if name is None or isinstance(name, int):
        return name
    named: dict[str, int | Fault] = {**Fault.__members__, **ResponseCode.__members__}
    if name not in named:
        raise ValueError(f"no answer is called {name!r}{nearest(name, named)} - at `$.answer`")
    return named[name]


def _check_disk_fault(asked: requests.AskedFault) -> None:
    others = {
        "on": asked.on,
        "answer": asked.answer,
        "remark": asked.remark,
        "topic": asked.topic,
        "group": asked.group,
        "client": asked.client,
    }
    if given := [name for name, value in others.items() if value is not None]:
        raise ValueError(f"a fault of the disk is met by no request: disk goes without {', '.join(given)}")
    if asked.delay_ms and asked.disk != "slow":
        raise ValueError(f"delay_ms goes with a slow disk, not with one that is {asked.disk}")


def _find(kind: str, table: dict[int, T], number: int) -> T:
    if number not in table:
        raise UnknownNameError(f"there is no {kind} {number}, these are: {', '.join(map(str, table)) or 'none'}")
    return table[number]


def _state_of(number: int, fault: ActiveFault) -> answers.FaultState:
    text = str(fault.rule) if isinstance(fault, InjectedFault) else str(fault)
    return answers.FaultState(id=number, fault=text, hits=fault.hits, optional=fault.optional)
