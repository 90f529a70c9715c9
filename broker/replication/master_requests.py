"""What members of a group ask each other: a slave its master, and 43, 45 and 906 also a master its slaves.

Upstream: ``BrokerOuterAPI``; spec replication.md §7.

    21   topics            fast port   in pages of 2,000
    201  groups            main port   the same
    43   offsets           main port
    45   delay progress    main port
    402  request modes     main port
    61   timer counts      fast port
    60   timer check       fast port
    907  end of the log    main port   official slaves do not ask it
    906  HA address        main port   the same; only where no name server has said it
    33   a record          main port   the same
    28   ends of the log   main port   the same

Rules

    1. The fast port is the main one less two. Topics and groups may take 30 s, the others 3 s.
    2. Pages are of one version: when it changes on the way all are asked for again. A master that does not say how many
       entries there are has sent all of them.
    3. No master is without topics or groups: an answer without them is refused, as is one that cannot be read.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from ...common.codes import ResponseCode
from ...common.errors import DecodeError, RemotingError
from ...common.ids import format_address
from ...common.java_numbers import parse_int64
from ...common.metadata import DataVersion, SubscriptionGroupTable, TopicConfigTable
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.replication import HaStatus, quote_numbers
from ...remoting.bodies.route import KVTable
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.pull import ViewMessageHeader
from ...remoting.headers.replication import (
    GroupPageHeader,
    GroupPageReply,
    HaAddressesHeader,
    TopicPageHeader,
    TopicPageReply,
)
from ...remoting.transport.client import ConnectionPool, parse_address
from ...store.timer.timer_check import TimerCheck, decode_timer_check
from ..delay.delay_progress import DelayFile
from ..group.groups import OffsetFile, RequestModes
from .kept_tables import TimerCounts
from .log_replication import MasterPlace

FAST_PORT_STEP: Final = -2
PAGE_ENTRIES: Final = 2_000
_PAGE_MS: Final = 30_000
_TABLE_MS: Final = 3_000
_MOST_RESTARTS: Final = 20
T = TypeVar("T")


class _Page(NamedTuple, Generic[T]):
    """A part of a table, and how many entries there are in all; ``None`` when these are all."""

    content: T
    version: DataVersion
    names: Iterable[str]
    total: int | None


class MasterRequests:
    """Asks one master, or slave.

    Each call raises ``RemotingError`` when there is no answer or a refusal, ``DecodeError`` when it makes no sense.
    """

    def __init__(self, pool: ConnectionPool, address: str) -> None:
        self._pool = pool
        self.address = address

    def __repr__(self) -> str:
        return f"<MasterRequests to {self.address}>"

    async def topics(self) -> TopicConfigTable:
        """Return all topics."""
        found = TopicConfigTable()
        for page in await _collect(self._topic_page):
            found.data_version = page.data_version
            found.topic_config_table |= page.topic_config_table
        if not found.topic_config_table:
            raise DecodeError(f"{self.address} answered without topics")
        return found

    async def groups(self) -> SubscriptionGroupTable:
        """Return all groups."""
        found = SubscriptionGroupTable()
        for page in await _collect(self._group_page):
            found.data_version = page.data_version
            found.subscription_group_table |= page.subscription_group_table
            found.forbidden_table |= page.forbidden_table
        if not found.subscription_group_table:
            raise DecodeError(f"{self.address} answered without groups")
        return found

    async def offsets(self) -> OffsetFile:
        """Return the offsets of all groups."""
        return await self._table(OffsetFile, Code.GET_ALL_CONSUMER_OFFSET)

    async def delays(self) -> DelayFile:
        """Return how far the delay levels have been delivered."""
        return await self._table(DelayFile, Code.GET_ALL_DELAY_OFFSET)

    async def modes(self) -> RequestModes:
        """Return which groups pull and which pop."""
        return await self._table(RequestModes, Code.GET_ALL_MESSAGE_REQUEST_MODE)

    async def timer_counts(self) -> TimerCounts:
        """Return how many timer messages wait."""
        return await self._table(TimerCounts, Code.GET_TIMER_METRICS, is_fast=True)

    async def timer_check(self) -> TimerCheck:
        """Return how far timer messages have been delivered."""
        answer = await self._ask(Command.request(Code.GET_TIMER_CHECK_POINT), _TABLE_MS, is_fast=True)
        check = decode_timer_check(answer.body)
        if check is None:
            raise DecodeError(f"{self.address} answered {len(answer.body)} bytes that are no timer check point")
        return check

    async def log_end(self) -> int | None:
        """Return where the log of the master ends, ``None`` if it does not tell such things."""
        command = Command.request(Code.GET_BROKER_HA_STATUS)
        answer = await self._pool.request(self.address, command, _TABLE_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        status = decode_answer(HaStatus, self._accepted(answer).body)
        if not status.master:
            raise RemotingError(f"{self.address} is no master")
        return status.master_commit_log_max_offset

    async def record_at(self, log_offset: int) -> bytes | None:
        """Return the record at a position of the log, ``None`` if the master has none there."""
        command = Command.request(Code.VIEW_MESSAGE_BY_ID, ViewMessageHeader(log_offset=log_offset))
        answer = await self._pool.request(self.address, command, _TABLE_MS)
        return bytes(answer.body) if answer.code == ResponseCode.SUCCESS else None

    async def log_bounds(self) -> tuple[int, int]:
        """Return where the log of the master begins and ends."""
        answer = await self._ask(Command.request(Code.GET_BROKER_RUNTIME_INFO), _TABLE_MS)
        told = decode_answer(KVTable, answer.body).table
        bounds = [parse_int64(told.get(key, "")) for key in ("commitLogMinOffset", "commitLogMaxOffset")]
        if bounds[0] is None or bounds[1] is None:
            raise DecodeError(f"{self.address} answered without the ends of its log")
        return bounds[0], bounds[1]

    async def ha_address(self) -> str:
        """Return where the log of the master is copied from."""
        header = HaAddressesHeader()
        answer = await self._ask(Command.request(Code.EXCHANGE_BROKER_HA_INFO, header), _TABLE_MS)
        told = decode_header(HaAddressesHeader, answer).ha_address
        if not told:
            raise DecodeError(f"{self.address} answered without the address of its HA port: it is no master")
        return told

    async def introduce(self, place: MasterPlace) -> None:
        """Tell a slave where its master is."""
        header = HaAddressesHeader(**place._asdict())
        await self._ask(Command.request(Code.EXCHANGE_BROKER_HA_INFO, header), _TABLE_MS)

    async def _topic_page(self, first: int, version: str) -> _Page[TopicConfigTable]:
        header = TopicPageHeader(topic_seq=first, data_version=version, max_topic_num=PAGE_ENTRIES)
        command = Command.request(Code.GET_ALL_TOPIC_CONFIG, header)
        answer = await self._ask(command, _PAGE_MS, is_fast=True)
        content = decode_answer(TopicConfigTable, answer.body)
        total = decode_header(TopicPageReply, answer).total_topic_num
        return _Page(content, content.data_version, content.topic_config_table, total)

    async def _group_page(self, first: int, version: str) -> _Page[SubscriptionGroupTable]:
        header = GroupPageHeader(group_seq=first, data_version=version, max_group_num=PAGE_ENTRIES)
        answer = await self._ask(Command.request(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header), _PAGE_MS)
        content = decode_answer(SubscriptionGroupTable, answer.body)
        total = decode_header(GroupPageReply, answer).total_group_num
        return _Page(content, content.data_version, content.subscription_group_table, total)

    async def _table(self, kind: type[T], code: Code, *, is_fast: bool = False) -> T:
        answer = await self._ask(Command.request(code), _TABLE_MS, is_fast=is_fast)
        return decode_answer(kind, quote_numbers(answer.body))

    async def _ask(self, command: Command, timeout_ms: int, *, is_fast: bool = False) -> Command:
        return self._accepted(await self._pool.request(self._address(is_fast=is_fast), command, timeout_ms))

    def _address(self, *, is_fast: bool) -> str:
        host, port = parse_address(self.address)
        return format_address(host, port + FAST_PORT_STEP) if is_fast else self.address

    def _accepted(self, answer: Command) -> Command:
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"{self.address} answered {answer.code}: {answer.remark}")
        return answer


async def _collect(ask: Callable[[int, str], Awaitable[_Page[T]]]) -> list[T]:
    """Return the pages of a table, all of one version."""
    pages: list[T] = []
    names: set[str] = set()
    version, restarts = "", 0
    while True:
        count = len(names)
        page = await ask(count, version)
        is_first, before = not version, version
        version = encode_body(page.version).decode()
        if page.total is not None and not is_first and version != before:
            restarts += 1
            if restarts > _MOST_RESTARTS:
                raise RemotingError(f"the table has changed {restarts} times while it was asked for")
            pages, names = [], set()
            continue
        pages.append(page.content)
        names.update(page.names)
        if page.total is None or len(names) >= page.total:
            return pages
        if len(names) == count:
            raise DecodeError(f"a page brought nothing new after {count} of {page.total} entries")
