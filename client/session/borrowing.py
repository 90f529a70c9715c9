"""Whose session a producer or consumer uses: its own, which opens and closes with it, or one that it shares."""

from contextlib import AbstractAsyncContextManager, nullcontext

from ...common.clock import Clock
from ...common.errors import ConfigError
from .session import Session
from .settings import ClientSettings, check_shared_settings


def borrow_session(
    session: Session | None, nameserver: str | None, settings: ClientSettings, clock: Clock | None
) -> tuple[Session, AbstractAsyncContextManager[Session]]:
    """Return the session of a participant, and what it has to enter: its own session, or nothing around a shared one.

    Raises:
        ConfigError: there is no name server, or one beside a session; a setting of sessions differs from the session's.
        TypeError: what was given is no session.
    """
    if session is None:
        session = Session(nameserver, clock, settings)
        return session, session
    if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"session is {type(session).__name__}, it must be a Session")
    if nameserver is not None:
        raise ConfigError("give nameserver or session, not both", key="nameserver")
    check_shared_settings(settings, session.settings)
    return session, nullcontext(session)
