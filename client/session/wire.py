"""What is done to each request before it leaves, and to each answer: namespace, hooks, signature, in this order.

The signature comes last, since it is of everything else. A session without any of the three has no ``Wire``.
"""

from collections.abc import Sequence

from ...remoting.codec.command import Command
from .credentials import Credentials
from .hooks import RpcHook, hooks_of
from .namespace import Namespace
from .settings import ClientSettings


class Wire:
    """The last and first to see what travels between one session and the servers."""

    def __init__(self, namespace: Namespace | None, hooks: Sequence[RpcHook], credentials: Credentials | None) -> None:
        self._namespace = namespace
        self._hooks = hooks
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"<Wire {self._namespace!r}, {len(self._hooks)} hooks, {self._credentials!r}>"

    def send(self, address: str, request: Command) -> None:
        """Make a request ready to leave; again for each address that it goes to."""
        if self._namespace is not None:
            self._namespace.wrap_request(request)
        for hook in self._hooks:
            hook.before_request(address, request)
        if self._credentials is not None:
            self._credentials.sign(request)

    def receive(self, address: str, request: Command, answer: Command) -> None:
        """Take an answer in."""
        for hook in self._hooks:
            hook.after_response(address, request, answer)
        if self._namespace is not None:
            self._namespace.strip_answer(request, answer)

    def receive_request(self, request: Command) -> None:
        """Take a broker's request in."""
        if self._namespace is not None:
            self._namespace.strip_request(request)


def wire_of(settings: ClientSettings, namespace: Namespace | None) -> Wire | None:
    """Return what the settings of a session ask for, or None when they ask for nothing."""
    hooks = hooks_of(RpcHook, settings.hooks)
    if namespace is None and not hooks and settings.credentials is None:
        return None
    return Wire(namespace, hooks, settings.credentials)
