"""Who is still connected at the end of a test, and where it was opened: the lines of the test and its application.

Our own client tells when a producer or consumer joins its session (``Session.on_join``), and the stack of that moment
is kept as long as the session lives: file, line and function, at the cost of some microseconds. Nobody listens but a
test run with the plugin. Of clients in other processes their client id is known, which holds host and process.
"""

import sys
import sysconfig
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ..broker.group.members import Presence

if TYPE_CHECKING:
    from ..client.session.session import Session

_MOST_FRAMES: Final = 20
_OWN_PACKAGE: Final = __name__.partition(".")[0]
_OTHERS: Final = frozenset([_OWN_PACKAGE, "__main__"])
"""Whose lines nobody looks for: ours, and those of the program that runs the tests."""
_LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {"<"})
_CLIENT: Final = f"{_OWN_PACKAGE}.client"

Stack = tuple[traceback.FrameSummary, ...]

_guard = threading.Lock()
_stacks: "WeakKeyDictionary[Session, dict[str, Stack]]" = WeakKeyDictionary()


@contextmanager
def opening_stacks() -> Generator[None]:
    """Keep in the block where producers and consumers are opened; one inside another changes nothing.

    While nobody has imported the client, nobody can have opened one, and it is not imported for that.
    """
    if _CLIENT not in sys.modules:
        yield
        return
    from ..client.session.session import Session

    before, Session.on_join = Session.on_join, _keep_stack
    try:
        yield
    finally:
        Session.on_join = before


def opened_clients() -> frozenset[str]:
    """Return the ids of the clients of this process that live and were opened in such a block."""
    with _guard:
        return frozenset(session.client_id for session in _stacks)


def _keep_stack(session: "Session", key: str) -> None:
    stack = tuple(_user_frames())
    with _guard:
        _stacks.setdefault(session, {})[key] = stack


def _user_frames() -> Iterator[traceback.FrameSummary]:
    """Yield the frames that are neither ours nor of libraries, the outermost first; their lines are read when shown."""
    walk = [(frame, number) for frame, number in traceback.walk_stack(None) if _is_users(frame)]
    for frame, number in reversed(walk[:_MOST_FRAMES]):
        code = frame.f_code
        yield traceback.FrameSummary(code.co_filename, number, code.co_name, lookup_line=False)


def _is_users(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] not in _OTHERS and not frame.f_code.co_filename.startswith(_LIBRARIES)


def describe_leaks(left: Iterable[Presence]) -> str:
    """Return who is still connected, in words, each with the stack that opened it if that is known."""
    lines = ["still connected to the broker at the end of the test:"]
    for presence in left:
        lines.append(describe_presence(presence))
        known = _find_stacks(presence.client_id)
        for role, group in _roles_of(presence):
            if stack := known.get(f"{role} group {group}"):
                lines.append(f"  {role} of {group} was opened here, the innermost call last:")
                lines += [f"  {line}" for call in traceback.format_list(stack) for line in call.splitlines()]
    return "\n".join(lines)


def _find_stacks(client_id: str) -> dict[str, Stack]:
    with _guard:
        found = [stacks for session, stacks in _stacks.items() if session.client_id == client_id]
        return {key: stack for stacks in found for key, stack in stacks.items()}


def _roles_of(presence: Presence) -> list[tuple[str, str]]:
    consumers = [("consumer", group) for group in presence.consumer_groups]
    return consumers + [("producer", group) for group in presence.producer_groups]


def describe_presence(presence: Presence) -> str:
    """Return a client and its groups in words.

    >>> describe_presence(Presence("127.0.0.1@7#1", ("billing",), ()))
    '127.0.0.1@7#1 (consumer of billing)'
    """
    return f"{presence.client_id} ({', '.join(f'{role} of {group}' for role, group in _roles_of(presence))})"
