"""Who asks, and whether they may: for doors to a broker's operations beside that of remoting (``guard.py``).

Rules

    1. A name counts when its user is known, may ask, and whatever was signed was signed with their key.
    2. Wrong signatures are counted for each address, and for each door; whoever has signed rightly from an address and
       port goes on there (``failed_tries.py``).
    3. What was granted is remembered until users or policies change.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from ...common.clock import Clock
from ...common.ids import Address
from ..settings.config import BrokerConfig
from .decision import Need
from .failed_tries import FailedTries
from .guard import MOST_GRANTED, NO_NAME, NOBODY, TOO_MANY_TRIES, WRONG_SIGNATURE
from .tables import Security

MOST_KNOWN: Final = 10_000
_log = logging.getLogger(__name__)


class Access:
    """Tells whether somebody may do something, and remembers what was granted."""

    def __init__(self, config: BrokerConfig, security: Security, clock: Clock) -> None:
        self._config = config.security
        self._security = security
        self._tries = FailedTries(clock)
        self._granted: set[tuple[str, Need, str]] = set()
        self._known: set[tuple[str, Address]] = set()  # who has signed rightly, and from where
        security.subscribe(self._forget)

    def __repr__(self) -> str:
        return f"<Access of {self._security!r}, {len(self._granted)} grants remembered>"

    @property
    def is_strict(self) -> bool:
        """Whether rights are asked for also where official servers ask for none."""
        return self._config.is_strict

    def refuse(
        self, kind: str, name: str | None, fits: Callable[[bytes], bool], needs: Iterable[Need], address: Address
    ) -> str | None:
        """Return why a request is refused, in upstream's words; ``None``: it is granted.

        ``kind`` is how white lists name such requests, ``fits`` tells whether a key has made its signature.
        """
        remark = self._identify(name, fits, address)
        is_open = kind in self._config.open_to_anybody
        if remark is not None and not is_open:
            return remark
        if not self._config.authorizes or kind in self._config.open_to_users:
            return None
        user_name = name if remark is None else None
        return next((refusal for need in needs if (refusal := self._check(user_name, need, address[0]))), None)

    def _identify(self, name: str | None, fits: Callable[[bytes], bool], address: Address) -> str | None:
        if not name:
            return NO_NAME
        if (name, address) not in self._known and self._tries.is_blocked(address[0]):
            return TOO_MANY_TRIES
        user = self._security.find_user(name)
        if user is not None and user.is_disabled:
            return f"User:{name} is disabled."
        if user is None or not fits(user.password.encode(errors="replace")):
            if self._tries.note(address[0]):
                _log.warning("checking nothing more from %s for a while: too many wrong signatures", address[0])
            return f"User:{name} is not found." if user is None else WRONG_SIGNATURE
        if (name, address) not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known.add((name, address))
        return None

    def _check(self, name: str | None, need: Need, source_ip: str) -> str | None:
        if name is None:
            return NOBODY
        grant = name, need, source_ip
        if grant in self._granted:
            return None
        refusal = self._security.refuse(name, need, source_ip)
        if refusal is None:
            if len(self._granted) >= MOST_GRANTED:
                self._granted.clear()
            self._granted.add(grant)
        return refusal

    def _forget(self) -> None:
        """Remember nothing that users and policies have decided."""
        self._granted.clear()
        self._known.clear()
