"""The key-value table of a name server, and its requests, as Java's ``KVConfigManager`` has them (behaviour.md A.6).

    {"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4"}}}

Reading and writing the file is the server's.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import field

from ..common.codes import ResponseCode
from ..common.errors import HeaderError
from ..common.outcome import Outcome
from ..remoting.bodies.body import encode_body
from ..remoting.bodies.route import KVTable
from ..remoting.codec.command import Command, decode_header
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.namesrv import KvHeader, KvReply, NamespaceHeader, PutKvHeader
from ..remoting.transport.connection import Connection
from ..remoting.transport.server import answers

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class KvFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``kvConfig.json``."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])


class KvTable:
    """Texts by namespace and key."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}

    def __repr__(self) -> str:
        return f"<KvTable of {len(self._namespaces)} namespaces>"

    def put(self, namespace: str, key: str, value: str) -> None:
        """Store a value."""
        self._namespaces.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value, if there is one."""
        self._namespaces.get(namespace, {}).pop(key, None)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all values of a namespace, None when there never was one."""
        return self._namespaces.get(namespace)

    def load(self, content: KvFile) -> None:
        """Take over what the file held."""
        self._namespaces = content.config_table

    def content(self) -> KvFile:
        """Return what the file shall hold."""
        return KvFile(config_table=self._namespaces)


MAX_ENTRY_CHARACTERS: Final = 1 << 20
Save = Callable[[Outcome[Command]], None]


class KvHandlers:
    """Answers from a key-value table; ``save`` writes it and then answers."""

    def __init__(self, kv: KvTable, save: Save | None) -> None:
        self._kv = kv
        self._save = save

    @answers(RequestCode.PUT_KV_CONFIG)
    def put(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Store a value; answered when it is saved."""
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

    @answers(RequestCode.DELETE_KV_CONFIG)
    def delete(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Forget a value; answered when that is saved."""
        header = decode_header(KvHeader, command)
        self._kv.delete(header.namespace, header.key)
        return self._saved()

    @answers(RequestCode.GET_KV_CONFIG)
    def get(self, command: Command, _connection: Connection) -> Command:
        """Tell a value."""
        header = decode_header(KvHeader, command)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return Command.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return Command.response(ResponseCode.SUCCESS, ext=KvReply(value=value))

    @answers(RequestCode.GET_KVLIST_BY_NAMESPACE)
    def list_namespace(self, command: Command, _connection: Connection) -> Command:
        """Tell all values of a namespace."""
        namespace = decode_header(NamespaceHeader, command).namespace
        table = self._kv.namespace(namespace)
        if table is None:
            remark = f"No config item, Namespace: {namespace}"
            return Command.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return Command.response(ResponseCode.SUCCESS, body=encode_body(KVTable(table=dict(table))))

    def _saved(self) -> Command | Outcome[Command]:
        if self._save is None:
            return Command.response(ResponseCode.SUCCESS)
        saved: Outcome[Command] = Outcome()
        self._save(saved)
        return saved
