"""What stands before the handlers of remoting where a broker knows its users: the door that ``access.py`` has there.

Rules, beside those of ``access.py``

    1. A request is served when its sender is known and its signature right, and then, where policies count, when the
       user may do what it needs. Else it is answered 16 with upstream's words, while nothing is checked 2; a one-way
       request is not answered. The connection stays open.
    2. A code that nobody has written down what it needs is served to nobody while policies count.
    3. What was granted is remembered by code, user, address and the fields that decide, too.
    4. What an answer lists is cut down to what the user may get, page by page no more: such an answer is whole.
    5. Refusals are logged with the address, up to a number in each period.

A handler does not know whether it is guarded. The name server guards nothing, as upstream (spec security.md §5, §7;
``AuthenticationPipeline``, ``AuthorizationPipeline``).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, final

import msgspec
from msgspec.structs import replace

from ...common.access import Action
from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import DecodeError, RecordError
from ...common.ids import Address
from ...common.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ...common.properties import REAL_TOPIC
from ...common.record import decode_record
from ...common.signing import ACCESS_KEY, short_check_class
from ...remoting.codec.command import Command
from ...remoting.codec.error_replies import describe_request
from ...remoting.codec.request_codes import RequestCode
from ...remoting.transport.connection import Connection, Handler, Reply, RequestHandlers, refuse_unknown
from ...remoting.transport.limits import LogRateLimiter
from ...store.message_store import MessageStore
from ..settings.config import BrokerConfig
from .access import NOBODY, Access, AccessRefusedError
from .needs import STRICT_NEEDS, UPSTREAM_NEEDS, Asked, Listed, Row, cluster_need, topic_need
from .signatures import is_signed

UNREADABLE: Final = "parse authorization context error."
_WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC})
_NO_NAMES: Final = frozenset[str]()
_log = logging.getLogger(__name__)


def stored_topic(store: MessageStore, log_offset: int) -> str | None:
    """Return the topic of a stored message, of one that waits there for its time the topic it goes to."""
    data = store.record_at(log_offset)
    try:
        record = None if data is None else decode_record(data)
    except RecordError:
        return None
    if record is None:
        return None
    return record.properties.get(REAL_TOPIC, record.topic) if record.topic in _WAITING_TOPICS else record.topic


def may_send(access: Access, address: Address, topic: str) -> bool:
    """Tell whether somebody who has signed on the connection from an address may send to a topic."""
    if access.is_free(str(int(RequestCode.SEND_MESSAGE_V2))):
        return True
    need = topic_need(topic, Action.PUB)
    return any(access.may(name, need, address[0]) for name in access.known.get(address, _NO_NAMES))


@final
class _Rule(NamedTuple):
    """How one code is guarded."""

    code: int
    row: Row | None
    depends_on: tuple[str, ...] | None
    is_open: bool
    """Whether the sender need not be known."""
    is_free: bool
    """Whether the user needs nothing."""


class Guard:
    """Checks requests before their handlers see them."""

    def __init__(self, config: BrokerConfig, access: Access, store: MessageStore, clock: Clock) -> None:
        self._cluster = config.cluster_name
        self._access = access
        self._rows = STRICT_NEEDS if access.is_strict else UPSTREAM_NEEDS
        self._store = store
        self._refusals = LogRateLimiter(clock, "requests refused to users")

    def __repr__(self) -> str:
        return f"<Guard {self._access!r}>"

    def around(self, handlers: RequestHandlers) -> RequestHandlers:
        """Return handlers that answer those who may ask."""
        by_code = {code: self._guard(self._rule(code), handler) for code, handler in handlers.by_code.items()}
        rules = {code: self._rule(code) for code in self._rows}

        def answer_others(command: Command, connection: Connection) -> Reply:
            rule = rules.get(command.code) or self._rule(command.code)
            return self._serve(rule, handlers.fallback, command, connection)

        return replace(handlers, by_code=by_code, fallback=answer_others)

    def _rule(self, code: int) -> _Rule:
        row, kind = self._rows.get(code), str(code)
        depends_on = row.depends_on if row else None
        return _Rule(code, row, depends_on, self._access.is_open(kind), self._access.is_free(kind))

    def _guard(self, rule: _Rule, handler: Handler) -> Handler:
        """Return what serves one code, at once where all is as usual and the same was granted before."""
        names = () if rule.is_free else rule.depends_on
        serve, access = self._serve, self._access
        if names is None or rule.is_open or (rule.row is not None and rule.row.listed is not None):
            return lambda command, connection: serve(rule, handler, command, connection)
        granted = None if rule.is_free else access.granted
        passes = short_check_class()(rule.code, names, access.keys, access.known, granted).passes

        def answer(command: Command, connection: Connection) -> Reply:
            if command.ext_table is None and passes(
                command.ext_text, command.body, command.version, connection.remote_address
            ):
                return handler(command, connection)
            return serve(rule, handler, command, connection)

        return answer

    def _serve(self, rule: _Rule, handler: Handler, command: Command, connection: Connection) -> Reply:
        try:
            name = self._identify(rule, command, connection)
            if rule.is_free:
                return handler(command, connection)
            if rule.row is None:
                return refuse_unknown(command, connection)
            self._authorize(rule, rule.row, name, command, connection)
        except AccessRefusedError as refused:
            return self._refuse(refused, command, connection)
        if rule.row.listed is not None and not self._may_get_all(name, connection):
            return self._cut_down(rule.row.listed, name, handler, command, connection)
        return handler(command, connection)

    def _identify(self, rule: _Rule, command: Command, connection: Connection) -> str | None:
        """Return who asks, ``None`` for nobody who is known; raise unless that is enough."""
        access, address, fields = self._access, connection.remote_address, command.ext
        is_new = address not in access.known
        name = access.identify(
            fields.get(ACCESS_KEY), partial(is_signed, command, fields), address, is_open=rule.is_open
        )
        if is_new and name is not None:
            connection.on_close(lambda _: access.leave(address))
        return name

    def _authorize(self, rule: _Rule, row: Row, name: str | None, command: Command, connection: Connection) -> None:
        """Raise unless a user may do what a request needs."""
        fields, source_ip = command.ext, connection.remote_address[0]
        grant = None
        if rule.depends_on is not None:
            grant = (rule.code, name, source_ip, tuple([fields.get(field) for field in rule.depends_on]))
            if grant in self._access.granted:
                return
        try:
            needs = row.needs(Asked(command, fields, self._cluster, self._stored_topic))
        except DecodeError as error:
            raise AccessRefusedError(UNREADABLE) from error
        self._access.authorize(name, needs, source_ip)
        if grant is not None and name is not None:
            self._access.grant(grant)

    def _stored_topic(self, log_offset: int) -> str | None:
        return stored_topic(self._store, log_offset)

    def _refuse(self, refused: AccessRefusedError, command: Command, connection: Connection) -> Command:
        if self._refusals.may_log():
            _log.warning("refusing %s: %.300r", describe_request(command, connection.peer), refused.remark)
        code = ResponseCode.SYSTEM_BUSY if refused.is_shut_out else ResponseCode.NO_PERMISSION
        return Command.response(code, refused.remark)

    # what is listed

    def _may_get_all(self, name: str | None, connection: Connection) -> bool:
        need = cluster_need(self._cluster, Action.GET)
        return name is not None and self._access.may(name, need, connection.remote_address[0])

    def _cut_down(
        self, listed: Listed, name: str | None, handler: Handler, command: Command, connection: Connection
    ) -> Reply:
        """Return what a handler lists, as far as the user may get it, in one piece."""
        if name is None:
            return self._refuse(AccessRefusedError(NOBODY), command, connection)
        source_ip = connection.remote_address[0]
        command.ext_table = {field: text for field, text in command.ext.items() if field not in listed.page_fields}
        whole = handler(command, connection)
        if not isinstance(whole, Command) or whole.code != ResponseCode.SUCCESS:
            return whole

        def may_get(entry: str) -> bool:
            return self._access.may(name, listed.find(entry, Action.GET), source_ip)

        whole.body, count = _keep(whole.body, listed.tables, may_get)
        whole.ext[listed.total_field] = str(count)
        return whole


_read_tables = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_write_tables = msgspec.json.Encoder().encode


def _keep(body: bytes, tables: tuple[str, ...], is_kept: Callable[[str], bool]) -> tuple[bytes, int]:
    """Return a body whose tables hold what is kept of them, and how much that is of the first."""
    content = _read_tables(body)
    counts: list[int] = []
    for table in tables:
        kept = {name: entry for name, entry in _read_tables(content.get(table, b"{}")).items() if is_kept(name)}
        content[table] = msgspec.Raw(_write_tables(kept))
        counts.append(len(kept))
    return _write_tables(content), counts[0]
