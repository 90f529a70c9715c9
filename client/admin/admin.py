"""The administrator's client: topics, groups, offsets, messages, brokers (Java's ``DefaultMQAdminExt``).

    part                  module
    topics                ``admin_topics.py``
    groups, members       ``admin_groups.py``
    offsets, progress     ``admin_offsets.py``
    messages              ``admin_messages.py``
    brokers               here and in ``admin_calls.py``

Changes are made on one broker after the other; when one fails, those before it are changed. Nothing is cached.
"""

from types import TracebackType
from typing import Self

from ...common.clock import Clock
from ...common.errors import ConfigError
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.register import KVTable
from ...remoting.codec.codes import RequestCode
from ...remoting.codec.command import Command
from ..session.lifecycle import Lifecycle
from ..session.session import Session, borrow_session
from ..session.settings import ClientSettings
from .admin_messages import MessageAdmin
from .admin_offsets import OffsetAdmin
from .admin_topics import TopicAdmin


class Admin(TopicAdmin, OffsetAdmin, MessageAdmin):
    """Asks and changes the servers; use it with ``async with``, from one event loop.

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("orders", TopicSettings(read_queues=16, write_queues=16))
            print((await admin.progress("billing", "orders")).lag)

    Without ``nameserver`` the environment variable NAMESRV_ADDR names it; with an open ``session`` it is shared. All
    calls raise ``RemotingError`` when a server does not answer, and ``ResponseError`` when it answers with an error:
    code 3 says that it does not know such a request. Names are those that brokers have, with their namespace.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        settings: ClientSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
    ) -> None:
        session, self._entered = borrow_session(session, nameserver, settings or ClientSettings(), clock)
        if session.namespace.name:
            raise ConfigError("an Admin names things as brokers do, without a namespace", key="namespace")
        super().__init__(session, Lifecycle("admin"))

    def __repr__(self) -> str:
        return f"<Admin {self._lifecycle.stage.name.lower()}, {self._session!r}>"

    async def __aenter__(self) -> Self:
        """Start; connections are made when they are needed.

        Raises:
            ClientStateError: it has been started before.
        """
        async with self._lifecycle.starting() as stack:
            await stack.enter_async_context(self._entered)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._lifecycle.close()

    async def figures(self, broker: str) -> dict[str, str]:
        """Return what the master of a broker tells of itself, such as ``putTps`` and ``commitLogDiskRatio``.

        Raises:
            ValueError: there is no such broker.
        """
        masters = await self._masters(None, [broker])
        answer = await self._ask_broker(masters[broker], Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return decode_answer(KVTable, answer.body).table

    async def delete_expired_files(self, broker: str) -> None:
        """Have a broker delete log files that are older than it is told to keep them, without waiting for its hour.

        Raises:
            ValueError: there is no such broker.
        """
        masters = await self._masters(None, [broker])
        await self._ask_broker(masters[broker], Command.request(RequestCode.DELETE_EXPIRED_COMMITLOG))
