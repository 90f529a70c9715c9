"""One official name server and broker for many tests of the client, as empty for each of them as a new one.

Starting the official servers takes seconds, wiping them some milliseconds: topics and groups that a test has made are
deleted with their offsets, so that tests may use the names that they use on a broker of ours that is only theirs. The
index of keys stays: a test that asks for keys takes new ones. So do messages that wait to come again: a test whose
listener fails either gets them, or sets ``max_retries=0``.
"""

import pathlib
from types import TracebackType
from typing import Any, Self

from interop.clients import Admin
from interop.servers import JavaServer

CALL_LIMIT_MS = 10_000


class OfficialBroker:
    """The official name server and broker 5.4.0 in one process; a context manager that ends it."""

    def __init__(self, store: pathlib.Path) -> None:
        self._server = JavaServer(store, {})
        self._admin = Admin(self._server.driver, namesrv=self._server.namesrv)
        self._own_topics = self._topics()
        self._own_groups = self._groups()

    def __enter__(self) -> Self:
        """Return the running broker."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self._server.kill()

    @property
    def namesrv(self) -> str:
        """The address of the name server."""
        return self._server.namesrv

    def wipe(self) -> None:
        """Delete the topics and groups that tests have made."""
        address = self._server.broker
        for group in self._groups() - self._own_groups:
            self._admin.call("deleteSubscriptionGroup", address, group, True)
        for topic in self._topics() - self._own_topics:
            self._admin.call("deleteTopicInBroker", [address], topic)
            self._admin.call("deleteTopicInNameServer", [self.namesrv], topic)

    def _topics(self) -> set[str]:
        return set(self._table("getAllTopicConfig", "topicConfigTable"))

    def _groups(self) -> set[str]:
        return set(self._table("getAllSubscriptionGroup", "subscriptionGroupTable"))

    def _table(self, method: str, name: str) -> dict[str, Any]:
        return self._admin.call(method, self._server.broker, CALL_LIMIT_MS)[name]
