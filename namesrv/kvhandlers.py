"""What a name server answers about its key-value table (spec behaviour.md A.6).

A change is answered when it is on disk; without a file, at once.
"""

from collections.abc import Callable
from typing import Final

from ..common.errors import HeaderError
from ..common.outcome import Outcome
from ..remoting.bodies.body import encode_body
from ..remoting.bodies.route import KVTable
from ..remoting.codec.codes import RequestCode, ResponseCode
from ..remoting.codec.command import Command, decode_header
from ..remoting.headers.namesrv import KvHeader, KvReply, NamespaceHeader, PutKvHeader
from ..remoting.transport.connection import Connection
from ..remoting.transport.endpoint import Handler
from .kv import KvTable

MAX_ENTRY_CHARACTERS: Final = 1 << 20
Save = Callable[[Outcome[Command]], None]


class KvHandlers:
    """Answers from a key-value table; ``save`` writes it and then answers."""

    def __init__(self, kv: KvTable, save: Save | None) -> None:
        self._kv = kv
        self._save = save

    def table(self) -> dict[int, Handler]:
        """Return the handler of each request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self._put,
            RequestCode.GET_KV_CONFIG: self._get,
            RequestCode.DELETE_KV_CONFIG: self._delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list,
        }

    def _put(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        header = decode_header(PutKvHeader, command)
        if header.namespace is None or header.key is None:
            return Command.response(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        if header.value is None:
            raise HeaderError("the custom field <value> is null")
        size, limit = len(header.namespace) + len(header.key) + len(header.value), MAX_ENTRY_CHARACTERS
        if size > limit:
            raise HeaderError(f"namespace, key and value are {size} characters, limit is {limit}")
        self._kv.put(header.namespace, header.key, header.value)
        return self._saved()

    def _delete(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        header = decode_header(KvHeader, command)
        self._kv.delete(header.namespace, header.key)
        return self._saved()

    def _get(self, command: Command, _connection: Connection) -> Command:
        header = decode_header(KvHeader, command)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return Command.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return Command.response(ResponseCode.SUCCESS, None, KvReply(value=value))

    def _list(self, command: Command, _connection: Connection) -> Command:
        namespace = decode_header(NamespaceHeader, command).namespace
        table = self._kv.namespace(namespace)
        if table is None:
            remark = f"No config item, Namespace: {namespace}"
            return Command.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return Command.response(ResponseCode.SUCCESS, None, None, encode_body(KVTable(table=dict(table))))

    def _saved(self) -> Command | Outcome[Command]:
        if self._save is None:
            return Command.response(ResponseCode.SUCCESS)
        saved: Outcome[Command] = Outcome()
        self._save(saved)
        return saved
