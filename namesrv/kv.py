"""The key-value table of a name server; its file is that of Java (``KVConfigManager``; spec behaviour.md A.6).

    {"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4"}}}

Pure: reading and writing the file is the server's.
"""

from collections.abc import Mapping

import msgspec
from msgspec import field

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class KvFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``kvConfig.json``."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])


class KvTable:
    """Texts by namespace and key."""

    def __init__(self, content: KvFile | None = None) -> None:
        self._namespaces = content.config_table if content else {}

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

    def content(self) -> KvFile:
        """Return what the file shall hold."""
        return KvFile(config_table=self._namespaces)
