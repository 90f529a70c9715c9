"""What clients have asked, decoded: kept while a test runs, to be looked at, and told when nothing has met a fault.

A request names its topic and group in its header, some in their body; its client only in a heartbeat, a lock and a
good-bye. So a connection remembers what was said on it: a request belongs to the client that any heartbeat of its
connection names, also one that comes later.
"""

import datetime
import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, overload

import msgspec

from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...remoting.bodies.body import decode_body, decode_body_if_any
from ...remoting.bodies.client import CheckClientBody, HeartbeatData, decode_lock_body
from ...remoting.codec.command import Command, parse_texts
from ...remoting.codec.frames import NO_ANSWER, PREFIX, Encoded, FrameParser
from ...remoting.codec.request_codes import RequestCode
from .operations import BETWEEN_SERVERS, codes_of, operation_name

MOST_REQUESTS: Final = 10_000
MOST_BODY_BYTES: Final = 1 << 26
_SHOWN: Final = 100
_GROUP_FIELDS: Final = ("consumerGroup", "producerGroup", "group", "groupName")
_SENDS: Final = codes_of("send") | codes_of("reply")
_LOCKS: Final = codes_of("lock_queues") | codes_of("unlock_queues")
_MAX_HEADER_BYTES: Final = 2**24 - 1

NO_ANSWER_YET: Final = "no answer yet"
ONE_WAY: Final = "one-way"
ANSWERED: Final = "answered"
DROPPED: Final = "dropped"
CLOSED: Final = "connection closed"
ANSWER_LOST: Final = "answer lost"
CUT_OFF: Final = "connection ended before the answer"


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as it was when somebody asked for it; ``fields`` are those of its header, as the client sent them.

    Of a client of RocketMQ 5 ``fields`` are the headers of its call, and ``body`` is the whole request in protobuf.

    ``state`` is "answered", "one-way", "no answer yet" or "connection ended before the answer"; after a fault also
    "dropped", "connection closed" or "answer lost" (``answer`` is what the client did not get then).
    """

    operation: str
    code: int
    server: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    client: str | None
    peer: str
    fields: Mapping[str, str]
    body: bytes
    at_ms: int
    state: str
    answer: int | None
    remark: str | None

    @property
    def topic(self) -> str | None:
        """The topic that it is about, of several the first."""
        return self.topics[0] if self.topics else None

    @property
    def group(self) -> str | None:
        """The group of producers or consumers that it names, of several the first."""
        return self.groups[0] if self.groups else None

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        """Return the request in a line."""
        at = datetime.datetime.fromtimestamp(self.at_ms / 1000, datetime.UTC)
        words = [f"{at:%H:%M:%S}.{self.at_ms % 1000:03d} {self.operation}"]
        words += [f"of {', '.join(self.topics)}"] if self.topics else []
        words += [f"by {self.client or self.peer}"]
        words += [f"(group {', '.join(self.groups)})"] if self.groups else []
        return f"{' '.join(words)}: {self._describe_answer()}"

    def _describe_answer(self) -> str:
        if self.answer is None:
            return self.state
        name = self.answer.name if isinstance(self.answer, enum.IntEnum) else str(self.answer)
        told = name if self.remark is None else f"{name} ({self.remark})"
        return told if self.state == ANSWERED else f"{self.state}: {told}"


class Requests(Sequence[ClientRequest]):
    """Requests in the order in which they came; ``forgotten`` older ones were too many to be kept."""

    def __init__(self, found: Sequence[ClientRequest], forgotten: int) -> None:
        self._found = found
        self.forgotten = forgotten

    @overload
    def __getitem__(self, index: int) -> ClientRequest: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ClientRequest]: ...
    def __getitem__(self, index: int | slice) -> ClientRequest | Sequence[ClientRequest]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return "\n  ".join([f"<{len(self)} requests", *self.lines()]) + ">"

    def lines(self) -> Iterator[str]:
        """Yield each request in a line, the last ones of many."""
        if self.forgotten:
            yield f"({self.forgotten} older requests of this test are forgotten, {MOST_REQUESTS} are kept)"
        if len(self) > _SHOWN:
            yield f"({len(self) - _SHOWN} not shown)"
        yield from map(str, self._found[-_SHOWN:])


class Named(NamedTuple):
    """Whom and what a request names."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    client: str | None


class ClientLink:
    """What was said on one connection."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.client: str | None = None
        self.groups: set[str] = set()
        self.is_closing = False
        """Whether a fault closes it: what came behind in the same read is not served any more."""
        self.open: dict[RecordedRequest, None] = {}
        """What is not answered."""

    def __repr__(self) -> str:
        return f"<ClientLink {self.client or self.peer}, {len(self.open)} requests not answered>"

    def hear(self, named: Named) -> None:
        """Note what a request says."""
        self.client = named.client or self.client
        self.groups.update(named.groups)

    def end(self) -> None:
        """Say that nobody waits for answers any more."""
        for request in self.open:
            request.state = CUT_OFF
        self.open.clear()


class RecordedRequest(msgspec.Struct, eq=False):
    """A request while it is served."""

    code: int
    server: str
    link: ClientLink
    named: Named
    fields: Mapping[str, str]
    body: bytes
    at_ms: int
    state: str = NO_ANSWER_YET
    answer: int | None = None
    remark: str | None = None

    @classmethod
    def of(cls, command: Command, server: str, link: ClientLink, at_ms: int) -> "RecordedRequest":
        """Read a request; whether it can be served is not asked."""
        fields = read_fields(command)
        named = name_parties(command, fields)
        link.hear(named)
        made = cls(command.code, server, link, named, fields, command.body, at_ms)
        if command.is_oneway:
            made.state = ONE_WAY
        else:
            link.open[made] = None
        return made

    @property
    def client(self) -> str | None:
        """Who has asked, as far as that is known by now."""
        return self.named.client or self.link.client

    def give_up(self, state: str) -> None:
        """Say what became of it instead of an answer."""
        self.state = state
        self.link.open.pop(self, None)

    def take_answer(self, answer: Command | Encoded | None) -> None:
        """Note how it is answered."""
        code, remark = read_answer(answer)
        self.take_code(code, remark)

    def take_code(self, code: int, remark: str | None) -> None:
        """Note code and remark of its answer."""
        self.answer = _known(code)
        self.remark = remark
        if self.state == NO_ANSWER_YET:
            self.give_up(ANSWERED)

    def snapshot(self) -> ClientRequest:
        """Return it as it is now."""
        return ClientRequest(
            operation=operation_name(self.code),
            code=self.code,
            server=self.server,
            topics=self.named.topics,
            groups=self.named.groups,
            client=self.client,
            peer=self.link.peer,
            fields=self.fields,
            body=self.body,
            at_ms=self.at_ms,
            state=self.state,
            answer=self.answer,
            remark=self.remark,
        )


class RequestLog:
    """The requests of a test, as many of the last as ``MOST_REQUESTS`` and ``MOST_BODY_BYTES`` allow."""

    def __init__(self) -> None:
        self._kept: deque[RecordedRequest] = deque()
        self._bytes = 0
        self._forgotten = 0

    def __repr__(self) -> str:
        return f"<RequestLog of {len(self._kept)}, {self._forgotten} forgotten>"

    def add(self, request: RecordedRequest) -> None:
        """Keep a request."""
        self._kept.append(request)
        self._bytes += len(request.body)
        while len(self._kept) > MOST_REQUESTS or (self._bytes > MOST_BODY_BYTES and len(self._kept) > 1):
            gone = self._kept.popleft()
            self._bytes -= len(gone.body)
            self._forgotten += gone.code not in BETWEEN_SERVERS

    def clear(self) -> None:
        """Begin anew."""
        self._kept.clear()
        self._bytes = self._forgotten = 0

    def find(self, on: str | None = None, topic: str | None = None, group: str | None = None) -> Requests:
        """Return what clients have asked, all of it or what is named (raises ``ValueError`` as ``codes_of`` does)."""
        codes = None if on is None else codes_of(on)

        def is_wanted(request: RecordedRequest) -> bool:
            named = request.named
            is_asked = request.code not in BETWEEN_SERVERS if codes is None else request.code in codes
            return is_asked and (topic is None or topic in named.topics) and (group is None or group in named.groups)

        return Requests([request.snapshot() for request in self._kept if is_wanted(request)], self._forgotten)


def read_fields(command: Command) -> Mapping[str, str]:
    """Return the header fields of a command, none if they cannot be read; the command stays as it came."""
    if command.ext_table is not None:
        return dict(command.ext_table)
    try:
        return parse_texts(command.ext_text)
    except DecodeError:
        return {}


def name_parties(command: Command, fields: Mapping[str, str]) -> Named:
    """Return whom and what a request names, in its header or its body."""
    read_body = _BODIES.get(command.code)
    if read_body is not None:
        try:
            return read_body(command.body)
        except DecodeError:
            return Named((), (), None)
    if command.code in _SENDS:
        topic, group = fields.get("b") or fields.get("topic"), fields.get("a") or fields.get("producerGroup")
        return Named((topic,) if topic else (), (group,) if group else (), None)
    topic = fields.get("topic") or fields.get("originTopic")
    groups = tuple(group for name in _GROUP_FIELDS if (group := fields.get(name)))
    client = fields.get("clientID") if command.code == RequestCode.UNREGISTER_CLIENT else None
    return Named((topic,) if topic else (), groups, client)


def _known(code: int) -> int:
    if isinstance(code, enum.IntEnum):
        return code  # of whatever protocol
    try:
        return ResponseCode(code)
    except ValueError:
        return code


def _read_heartbeat(body: bytes) -> Named:
    data = decode_body(HeartbeatData, body)
    groups = [consumer.group_name for consumer in data.consumer_data_set]
    groups += [producer.group_name for producer in data.producer_data_set]
    topics = [one.topic for consumer in data.consumer_data_set for one in consumer.subscription_data_set]
    return Named(tuple(dict.fromkeys(topics)), tuple(dict.fromkeys(groups)), data.client_id)


def _read_lock(body: bytes) -> Named:
    wish = decode_lock_body(body)
    topics = sorted({queue.topic for queue in wish.mq_set})
    return Named(tuple(topics), (wish.consumer_group,), wish.client_id)


def _read_check(body: bytes) -> Named:
    asked = decode_body_if_any(CheckClientBody, body)
    if asked is None:
        return Named((), (), None)
    topic = asked.subscription_data.topic if asked.subscription_data else ""
    return Named((topic,) if topic else (), (asked.group,) if asked.group else (), asked.client_id or None)


_BODIES: Final[Mapping[int, Callable[[bytes], Named]]] = {
    RequestCode.HEART_BEAT: _read_heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: _read_check,
    **dict.fromkeys(_LOCKS, _read_lock),
}


def read_answer(answer: Command | Encoded | None) -> tuple[int, str | None]:
    """Return code and remark of an answer, which may be encoded already."""
    if answer is None:
        return ResponseCode.SYSTEM_ERROR, NO_ANSWER
    if isinstance(answer, Command):
        return answer.code, answer.remark
    frame = answer if isinstance(answer, bytes) else bytes(answer[0])  # a header is written in one piece
    _, word = PREFIX.unpack_from(frame)
    header = frame[PREFIX.size : PREFIX.size + (word & _MAX_HEADER_BYTES)]
    (command,) = FrameParser().feed(PREFIX.pack(4 + len(header), word) + header)
    return command.code, command.remark
