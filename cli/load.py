"""``rocketlet load``: sends the messages of a dump to a cluster.

    blocks of the dump -> messages, in the order of their queues -> sender -> how far everything is stored

Rules:

- Messages of one queue, or with one sharding key, go to one queue, in their order. They are new messages there; what
  they were is in properties of theirs (``ORIGIN``), and UNIQ_KEY stays, so copies can be told.
- At least once: whatever ends the loading, the number of messages that are surely stored is told, and ``--skip`` or
  ``--state`` goes on from there.
- A message that nobody takes is named and passed over; then the exit code is 1.
"""

import asyncio
import os
import pathlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click
import msgspec

from ..common.errors import ClientError, ConfigError, DecodeError, RemotingError, SendRefusedError
from ..common.message import replayed
from ..common.names import AUTO_CREATE_TOPIC
from ..common.properties import SHARDING_KEY
from .reading import needs_extra
from .verbs.arguments import topic_map
from .verbs.progress import show_progress

if TYPE_CHECKING:
    from ..client.producer.bulk_sender import BulkHandle, BulkSender, OutboundMessage
    from ..client.producer.producer import Producer
    from ..client.session.settings import ProducerSettings
    from ..export.write.dump_file import DumpBlock, DumpedMessage, DumpReader

GROUP: Final = "rocketlet-load"
ORIGIN: Final = {
    "DUMPED_TOPIC": "topic",
    "DUMPED_QUEUE_ID": "queue_id",
    "DUMPED_QUEUE_OFFSET": "queue_offset",
    "DUMPED_MSG_ID": "msg_id",
    "DUMPED_OFFSET_MSG_ID": "offset_msg_id",
    "DUMPED_BORN_TIMESTAMP": "born_timestamp",
    "DUMPED_STORE_TIMESTAMP": "store_timestamp",
    "DUMPED_BORN_HOST": "born_host",
}
_NAMED_REFUSALS: Final = 5
_STATE_STEP: Final = 10_000


class LoadFlags(TypedDict):
    """The arguments of ``load``."""

    path: pathlib.Path
    namesrv: str | None
    topics: tuple[str, ...]
    renamed: Mapping[str, str]
    skip: int
    state_path: pathlib.Path | None
    rate: float | None
    in_flight: int
    timeout_s: int
    group: str
    access_key: str | None
    secret_key: str | None
    uses_tls: bool
    trust_path: pathlib.Path | None
    checks_only: bool


_PATH: Final = click.Path(path_type=pathlib.Path)
_COUNT: Final = click.IntRange(min=1)
_OPTIONS: Final = (
    click.option("--namesrv", metavar="A;B", envvar="NAMESRV_ADDR", help="Name servers.  [default: NAMESRV_ADDR]"),
    click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic of the dump; repeatable."),
    click.option(
        "--topic-map", "renamed", metavar="OLD=NEW", multiple=True, callback=topic_map, help="Send to another topic."
    ),
    click.option(
        "--skip", metavar="N", type=click.IntRange(min=0), default=0, help="Begin with message N.  [default: 0]"
    ),
    click.option("--state", "state_path", metavar="PATH", type=_PATH, help="File that keeps how far it is, to go on."),
    click.option("--rate", metavar="N", type=click.FloatRange(min=0, min_open=True), help="Messages a second."),
    click.option("--in-flight", metavar="N", type=_COUNT, default=16, help="Requests at once.  [default: 16]"),
    click.option(
        "--timeout",
        "timeout_s",
        metavar="S",
        type=_COUNT,
        default=120,
        help="Seconds to try each.  [default: 120]",
    ),
    click.option("--group", default=GROUP, help=f"Producer group.  [default: {GROUP}]"),
    click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", help="User, on brokers with access control."),
    click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", help="Better: the variable ROCKETMQ_SECRET_KEY."),
    click.option("--tls", "uses_tls", is_flag=True, help="Connect under TLS."),
    click.option("--tls-trust", "trust_path", metavar="PATH", type=_PATH, help="Certificates to trust (PEM)."),
    click.option("--check", "checks_only", is_flag=True, help="Read the dump, count, and send nothing."),
)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(short_help="Send the messages of a dump file to a cluster.")
@click.argument("path", metavar="FILE", type=_PATH)
@_with_options
@click.pass_context
def load(ctx: click.Context, **flags: Unpack[LoadFlags]) -> None:
    """Send the messages of a dump to a cluster; each queue keeps its order.

    They are new messages there, and properties named DUMPED_… tell what they were. Exit code 1 means that a message
    was refused, or that the dump is damaged or the cluster failed; then it is told from where to go on.
    """
    with needs_extra("load"):
        from ..export.write.dump_file import DumpReader
    with DumpReader(os.fspath(flags["path"])) as reader:
        is_whole = _check(reader) if flags["checks_only"] else _load(reader, flags)
    if not is_whole:
        ctx.exit(1)


def _check(reader: "DumpReader") -> bool:
    counts: Counter[str] = Counter()
    try:
        for block in reader.blocks():
            counts.update(message.topic for message in block.messages)
    except DecodeError as error:
        click.echo(f"rocketlet: {error}", err=True)
        return False
    finally:
        for topic, count in sorted(counts.items()):
            click.echo(f"  {topic}: {count} messages")
        click.echo(f"{reader.path}: {counts.total()} messages")
    return True


def _load(reader: "DumpReader", flags: LoadFlags) -> bool:
    state = State(flags["state_path"], reader.info.id)
    loading = Loading(reader, flags, max(flags["skip"], state.read()))
    settings = _producer_settings(flags)
    try:
        with show_progress(reader.size_bytes, "loading", "loaded") as loading.advance:
            asyncio.run(_send(loading, settings, flags, state))
    except (RemotingError, ClientError, DecodeError) as error:
        click.echo(f"rocketlet: {error}", err=True)
        return False
    finally:
        if loading.has_begun:
            state.write(loading.done)
            loading.tell()
    return not loading.refused


async def _send(loading: "Loading", settings: "ProducerSettings", flags: LoadFlags, state: "State") -> None:
    from ..client.producer.bulk_sender import BulkLimits, BulkSender, RateLimiter
    from ..client.producer.producer import Producer
    from ..remoting.transport.event_loop import LoopClock

    clock = LoopClock()
    rate_limiter = None if flags["rate"] is None else RateLimiter(flags["rate"], clock)
    limits = BulkLimits(in_flight=flags["in_flight"], patience_ms=1000 * flags["timeout_s"])
    async with Producer(flags["group"], flags["namesrv"], settings=settings) as producer:
        await _check_nameserver(producer)
        async with BulkSender(
            producer, limits, rate_limiter=rate_limiter, on_refused=loading.refuse, clock=clock
        ) as sender:
            await loading.run(sender, state)


async def _check_nameserver(producer: "Producer") -> None:
    """Fail at once where waiting for the cluster to come back would not help: nobody was ever there."""
    try:
        await producer.fetch_queues(AUTO_CREATE_TOPIC)
    except RemotingError as error:
        raise ConfigError(f"no name server answers: {error}", key="--namesrv") from error
    except ClientError:
        return  # it answers, and topics are not made by themselves there


def _producer_settings(flags: LoadFlags) -> "ProducerSettings":
    from ..client.session.settings import Credentials, ProducerSettings, Tls

    access_key, secret_key = flags["access_key"], flags["secret_key"]
    if (access_key is None) != (secret_key is None):
        raise ConfigError("--access-key and --secret-key need each other", key="--access-key")
    if flags["trust_path"] is not None and not flags["uses_tls"]:
        raise ConfigError("--tls-trust is given, but --tls is not", key="--tls-trust")
    return ProducerSettings(
        credentials=Credentials(access_key, secret_key) if access_key and secret_key else None,
        tls=Tls(trust_file=flags["trust_path"]) if flags["uses_tls"] else None,
        send_timeout_ms=10_000,
        tries_another_broker_when_not_stored_ok=True,
    )


class Loading:
    """One run: what was read and sent. All messages before number ``done`` are stored, or were passed over."""

    def __init__(self, reader: "DumpReader", flags: LoadFlags, first: int) -> None:
        self.done = first
        self.refused = 0
        self.has_begun = False
        self.advance: Callable[[int], object] = lambda _: None
        self._reader = reader
        self._first = first
        self._topics = frozenset(flags["topics"])
        self._renamed = flags["renamed"]
        self._counts: Counter[str] = Counter()
        self._under_way: deque[tuple[BulkHandle, int]] = deque()

    async def run(self, sender: "BulkSender", state: "State") -> None:
        """Send everything and wait until it is stored (raises what ``BulkSender.put`` and ``DumpReader.blocks`` do)."""
        self.has_begun, position = True, 0
        blocks = self._reader.blocks(self._first)
        try:
            while (block := await asyncio.to_thread(next, blocks, None)) is not None:
                handle = await sender.put(self._outbound_of(block))
                self._under_way.append((handle, block.number + len(block.messages)))
                self.advance(block.end - position)
                position = block.end
                self._note()
                if self.done >= state.written + _STATE_STEP:
                    await asyncio.to_thread(state.write, self.done)
            await sender.drain()
            self.advance(self._reader.size_bytes - position)
        except DecodeError:
            await sender.drain()  # what was read before the damage is to be stored
            raise
        finally:
            self._note()
            self._counts["stored"] = sender.stored
        if self._reader.messages is not None and self._first > self._reader.messages:
            raise ConfigError(f"the dump has {self._reader.messages} messages, it cannot begin with {self._first}")

    def refuse(self, refusal: SendRefusedError) -> None:
        """Name a message that was refused, if it is one of the first."""
        self.refused += 1
        if self.refused <= _NAMED_REFUSALS:
            click.echo(f"rocketlet: {refusal}", err=True)

    def tell(self) -> None:
        """Print the counts, and from where to go on if something is left."""
        stored, other = self._counts["stored"], self._counts["other"]
        click.echo(f"{self._reader.path}: {stored} messages stored, {self.refused} refused, {other} of other topics")
        if self._reader.messages is None or self.done < self._reader.messages:
            click.echo(f"all before message {self.done} are done with; --skip {self.done} goes on from there")

    def _outbound_of(self, block: "DumpBlock") -> "list[OutboundMessage]":
        numbered = [each for each in enumerate(block.messages, block.number) if each[0] >= self._first]
        wanted = [(number, each) for number, each in numbered if not self._topics or each.topic in self._topics]
        self._counts["other"] += len(numbered) - len(wanted)
        outbound = [outbound_of(message, number, self._renamed) for number, message in wanted]
        for (number, _), each in zip(wanted, outbound, strict=True):
            if each is None:
                self.refuse(SendRefusedError(number, "its body could not be read when it was dumped"))
        return [each for each in outbound if each is not None]

    def _note(self) -> None:
        while self._under_way and self._under_way[0][0].is_done:
            self.done = self._under_way.popleft()[1]


def outbound_of(message: "DumpedMessage", number: int, renamed: Mapping[str, str]) -> "OutboundMessage | None":
    """Return a message of a dump as one to send, None for one without a body."""
    from ..client.producer.bulk_sender import OutboundMessage

    if message.body is None:
        return None
    topic = renamed.get(message.topic, message.topic)
    copy = replayed(topic, message.body, message.properties, message.flag)
    if not copy.properties.keys() & ORIGIN.keys():  # one that was loaded before keeps what it was at first
        origin = {name: getattr(message, field) for name, field in ORIGIN.items()}
        copy.properties.update({name: str(value) for name, value in origin.items() if value is not None})
    return OutboundMessage(copy, number, copy.properties.get(SHARDING_KEY) or f"{message.topic}/{message.queue_id}")


class State:
    """The file that keeps how far the loading of a dump is; without a path it is nowhere."""

    def __init__(self, path: pathlib.Path | None, dump_id: str) -> None:
        self.written = 0
        self._path = path
        self._dump_id = dump_id

    def read(self) -> int:
        """Return where to go on, 0 without a file.

        Raises:
            ConfigError: The file cannot be read, or is that of another dump.
        """
        if self._path is None or not self._path.exists():
            return 0
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=Reached)
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"--state {self._path} cannot be read: {error}", key="--state") from error
        if found.dump != self._dump_id:
            raise ConfigError(f"--state {self._path} is that of another dump", key="--state")
        self.written = found.next
        return found.next

    def write(self, done: int) -> None:
        """Save that all messages before this one are done with (raises ``ConfigError``)."""
        self.written = done
        if self._path is None:
            return
        part = self._path.with_name(f"{self._path.name}.part")
        try:
            part.write_bytes(msgspec.json.encode(Reached(self._dump_id, done)))
            part.replace(self._path)
        except OSError as error:
            raise ConfigError(f"--state {self._path} cannot be written: {error.strerror}", key="--state") from error


class Reached(msgspec.Struct):
    """The content of the state file: which dump, and the first message that may not be stored."""

    dump: str
    next: int
