"""What stands before the handlers of a broker that knows its users: who asks, and whether they may.

Rules

    1. A request is served when its sender is known and its signature right, and then, where policies count, when the
       user may do what it needs. Else it is answered 16 with upstream's words; a one-way request is not answered. The
       connection stays open.
    2. A code that nobody has written down what it needs is served to nobody while policies count.
    3. A code on ``authenticationWhitelist`` may come from anybody. Whose name comes without the right signature is
       nobody, who may do what needs nothing. (An official broker believes the name.) A code on
       ``authorizationWhitelist`` needs nothing.
    4. What was granted once is remembered until users or policies change: by code, user, address and the fields that
       decide. What was refused is decided anew.
    5. What an answer lists is cut down to what the user may get, page by page no more: such an answer is whole.
    6. Refusals are logged with the address, up to a number in each period, as are too many wrong signatures.

A handler does not know whether it is guarded. The name server guards nothing, as upstream (spec security.md §5, §7;
``AuthenticationPipeline``, ``AuthorizationPipeline``).
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, final

import msgspec

from ...common.access import Action
from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import DecodeError, RecordError
from ...common.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ...common.properties import REAL_TOPIC
from ...common.record import decode_record
from ...common.signing import ACCESS_KEY, SigningKey, scan_signed
from ...remoting.codec.command import Command
from ...remoting.codec.error_replies import describe_request
from ...remoting.transport.connection import Connection, Handler, Reply, RequestHandlers, refuse_unknown
from ...remoting.transport.limits import LogRateLimiter
from ...store.message_store import MessageStore
from ..settings.config import BrokerConfig
from .decision import Need
from .failed_tries import FailedTries
from .needs import STRICT_NEEDS, UPSTREAM_NEEDS, Asked, Listed, Row, cluster_need
from .signatures import is_signed
from .tables import Security

NO_NAME: Final = "username cannot be null."
WRONG_SIGNATURE: Final = "check signature failed."
NOBODY: Final = "Authorization failed. Please verify your access rights and try again."
UNREADABLE: Final = "parse authorization context error."
TOO_MANY_TRIES: Final = "too many wrong signatures came from this address, try again in a minute"
MOST_GRANTED: Final = 20_000
"""Grants that are remembered."""
MOST_NAMES: Final = 64
"""Users whom one connection is known to sign as."""
_WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC})
_NOBODY: Final = frozenset[str]()
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


@final
class _RefusedError(Exception):
    """A request is not served; raised and caught here."""

    def __init__(self, remark: str, code: int = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(remark)
        self.remark = remark
        self.code = code


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

    def __init__(self, config: BrokerConfig, security: Security, store: MessageStore, clock: Clock) -> None:
        self._config = config.security
        self._cluster = config.cluster_name
        self._rows = STRICT_NEEDS if config.security.is_strict else UPSTREAM_NEEDS
        self._open, self._free = config.security.open_to_anybody, config.security.open_to_users
        self._security = security
        self._store = store
        self._tries = FailedTries(clock)
        self._refusals = LogRateLimiter(clock, "requests refused to users")
        self._keys: dict[str, SigningKey] = {}  # of users who may sign
        self._granted: set[object] = set()
        self._known: dict[Connection, set[str]] = {}  # as whom they have signed rightly
        security.subscribe(self._forget)

    def __repr__(self) -> str:
        return f"<Guard of {self._security!r}, {len(self._granted)} grants remembered>"

    def around(self, handlers: RequestHandlers) -> RequestHandlers:
        """Return handlers that answer those who may ask."""
        by_code = {code: self._guard(self._rule(code), handler) for code, handler in handlers.by_code.items()}
        rules = {code: self._rule(code) for code in self._rows}

        def answer_others(command: Command, connection: Connection) -> Reply:
            rule = rules.get(command.code) or self._rule(command.code)
            return self._serve(rule, handlers.fallback, command, connection)

        return RequestHandlers(by_code, answer_others, handlers.after_batch)

    def _rule(self, code: int) -> _Rule:
        row = self._rows.get(code)
        is_free = not self._config.authorizes or str(code) in self._free
        return _Rule(code, row, row.depends_on if row else None, str(code) in self._open, is_free)

    def _guard(self, rule: _Rule, handler: Handler) -> Handler:
        """Return what serves one code, at once where all is as usual and the same was granted before."""
        code, is_free, names = rule.code, rule.is_free, () if rule.is_free else rule.depends_on
        serve, keys, known, granted = self._serve, self._keys, self._known, self._granted
        if names is None or rule.is_open or (rule.row is not None and rule.row.listed is not None):
            return lambda command, connection: serve(rule, handler, command, connection)

        def answer(command: Command, connection: Connection) -> Reply:
            if command.ext_table is None:
                found = scan_signed(command.ext_text, command.body, command.version, names)
                if found is not None:
                    name, signature, content, values = found
                    key = keys.get(name)
                    if (
                        key is not None
                        and name in known.get(connection, _NOBODY)
                        and (is_free or (code, name, connection.remote_address[0], values) in granted)
                        and key.fits(signature, content)
                    ):
                        return handler(command, connection)
            return serve(rule, handler, command, connection)

        return answer

    def _serve(self, rule: _Rule, handler: Handler, command: Command, connection: Connection) -> Reply:
        try:
            name = self._authenticate(rule, command, connection)
            if rule.is_free:
                return handler(command, connection)
            if rule.row is None:
                return refuse_unknown(command, connection)
            self._authorize(rule, rule.row, name, command, connection)
        except _RefusedError as refused:
            return self._refuse(refused, command, connection)
        if rule.row.listed is not None and not self._may_get_all(name, connection):
            return self._cut_down(rule.row.listed, name, handler, command, connection)
        return handler(command, connection)

    # who

    def _authenticate(self, rule: _Rule, command: Command, connection: Connection) -> str | None:
        """Return who asks, ``None`` for nobody who is known; raise unless that is enough."""
        fields = command.ext
        name = fields.get(ACCESS_KEY)
        if rule.is_open:
            return name if name and self._is_known(name, command, connection) else None
        if not name:
            raise _RefusedError(NO_NAME)
        address = connection.remote_address[0]
        if self._tries.blocked and self._is_shut_out(name, address, connection):
            raise _RefusedError(TOO_MANY_TRIES, ResponseCode.SYSTEM_BUSY)
        key = self._keys.get(name) or self._find_key(name)
        if key is None:
            user = self._security.find_user(name)
            if user is not None:
                raise _RefusedError(f"User:{name} is disabled.")
            self._note_try(address)
            raise _RefusedError(f"User:{name} is not found.")
        if not is_signed(command, fields, key):
            self._note_try(address)
            raise _RefusedError(WRONG_SIGNATURE)
        names = self._known.get(connection)
        if names is None or name not in names:
            self._remember(name, connection)
        return name

    def _is_known(self, name: str, command: Command, connection: Connection) -> bool:
        """Tell whether who need not say a name has said it rightly."""
        address = connection.remote_address[0]
        key = self._find_key(name)
        if (
            key is not None
            and not self._is_shut_out(name, address, connection)
            and is_signed(command, command.ext, key)
        ):
            return True
        self._note_try(address)
        return False

    def _find_key(self, name: str) -> SigningKey | None:
        """Return what a user signs with, ``None`` if there is none who may."""
        user = self._security.find_user(name)
        if user is None or user.is_disabled:
            return None
        key = self._keys[name] = SigningKey(user.password)
        return key

    def _is_shut_out(self, name: str, address: str, connection: Connection) -> bool:
        return name not in self._known.get(connection, _NOBODY) and self._tries.is_blocked(address)

    def _note_try(self, address: str) -> None:
        if self._tries.note(address):
            _log.warning("checking nothing more from %s for a while: too many wrong signatures", address)

    def _remember(self, name: str, connection: Connection) -> None:
        names = self._known.get(connection)
        if names is None:
            names = self._known[connection] = set()
            connection.on_close(lambda ended: self._known.pop(ended, None))
        if len(names) < MOST_NAMES:
            names.add(name)

    def _forget(self) -> None:
        """Remember nothing that users and policies have decided."""
        self._keys.clear()
        self._granted.clear()
        for names in self._known.values():
            names.clear()

    # whether

    def _authorize(self, rule: _Rule, row: Row, name: str | None, command: Command, connection: Connection) -> None:
        """Raise unless a user may do what a request needs."""
        fields, address = command.ext, connection.remote_address[0]
        grant = None
        if rule.depends_on is not None:
            grant = (rule.code, name, address, tuple([fields.get(field) for field in rule.depends_on]))
            if grant in self._granted:
                return
        try:
            needs = row.needs(Asked(command, fields, self._cluster, self._stored_topic))
        except DecodeError as error:
            raise _RefusedError(UNREADABLE) from error
        for need in needs:
            self._check(name, need, address)
        if grant is not None and name is not None:
            self._grant(grant)

    def _check(self, name: str | None, need: Need, address: str) -> None:
        """Raise unless a user may do one thing that a request needs."""
        if name is None:
            raise _RefusedError(NOBODY)
        grant = (name, need, address)
        if grant in self._granted:
            return
        remark = self._security.refuse(name, need, address)
        if remark is not None:
            raise _RefusedError(remark)
        self._grant(grant)

    def _grant(self, grant: object) -> None:
        if len(self._granted) >= MOST_GRANTED:
            self._granted.clear()
        self._granted.add(grant)

    def _stored_topic(self, log_offset: int) -> str | None:
        return stored_topic(self._store, log_offset)

    def _refuse(self, refused: _RefusedError, command: Command, connection: Connection) -> Command:
        if self._refusals.may_log():
            _log.warning("refusing %s: %.300r", describe_request(command, connection.peer), refused.remark)
        return Command.response(refused.code, refused.remark)

    # what is listed

    def _may_get_all(self, name: str | None, connection: Connection) -> bool:
        need = cluster_need(self._cluster, Action.GET)
        return name is not None and self._security.refuse(name, need, connection.remote_address[0]) is None

    def _cut_down(
        self, listed: Listed, name: str | None, handler: Handler, command: Command, connection: Connection
    ) -> Reply:
        """Return what a handler lists, as far as the user may get it, in one piece."""
        if name is None:
            return self._refuse(_RefusedError(NOBODY), command, connection)
        address = connection.remote_address[0]
        command.ext_table = {field: text for field, text in command.ext.items() if field not in listed.page_fields}
        whole = handler(command, connection)
        if not isinstance(whole, Command) or whole.code != ResponseCode.SUCCESS:
            return whole

        def may_get(entry: str) -> bool:
            return self._security.refuse(name, listed.find(entry, Action.GET), address) is None

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
