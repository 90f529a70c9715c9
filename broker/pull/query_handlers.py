"""The adapter of the wire for messages that are looked for: requests 12, by key, and 33, by id.

Upstream: ``QueryMessageProcessor`` (behaviour.md B.14). The index knows hashes, so an answer to a query by key may hold
other messages too; clients compare the key.
"""

from ...common.codes import ResponseCode
from ...common.errors import HeaderError
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.pull import QueryMessageHeader, QueryMessageReply, ViewMessageHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ...store.index.key_index import KeyKind
from ...store.message_store import MessageStore
from ..settings.live import LiveSettings

_KINDS: dict[str, KeyKind] = {"K": "K", "U": "U", "T": "T"}


class QueryHandlers:
    """Answers from the index and the log."""

    def __init__(self, store: MessageStore, settings: LiveSettings) -> None:
        self._store = store
        self._settings = settings

    @answers(Code.QUERY_MESSAGE)
    def query(self, command: Command, _connection: Connection) -> Command:
        """Find messages by key, unique key or tag."""
        header = decode_header(QueryMessageHeader, command)
        kind: KeyKind = "U" if header.is_unique_key else _KINDS.get(header.index_type or "K", "K")
        count = self._settings.config.default_query_count if header.is_unique_key else header.max_messages
        if count < 0:
            raise HeaderError(f"the custom field <maxNum> is negative: {count}")
        found = self._store.query(header.topic, header.key, count, header.begin_ms, header.end_ms, kind=kind)
        reply = QueryMessageReply(index_updated_at_ms=found.last_at_ms, index_updated_log_offset=found.last_log_offset)
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            return Command.response(ResponseCode.QUERY_NOT_FOUND, remark, reply)
        return Command.response(ResponseCode.SUCCESS, ext=reply, body=b"".join(found.records))

    @answers(Code.VIEW_MESSAGE_BY_ID)
    def view(self, command: Command, _connection: Connection) -> Command:
        """Return the message at a position of the log."""
        log_offset = decode_header(ViewMessageHeader, command).log_offset
        record = self._store.record_at(log_offset)
        if record is None:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {log_offset}")
        return Command.response(ResponseCode.SUCCESS, body=bytes(record))
