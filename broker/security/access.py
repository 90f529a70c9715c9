"""Who asks, and whether they may: the rules that all doors of a broker share, and what is remembered for them.

Rules

    1. A name counts when its user is known and enabled, and whatever was signed was signed with their key.
    2. What is on ``authenticationWhitelist`` may come from anybody. Whose name comes without the right signature is
       nobody, who may do what needs nothing. (An official broker believes the name.) What is on
       ``authorizationWhitelist`` needs nothing.
    3. Wrong signatures, and names of nobody, are counted for each address, whatever door they come to; beyond a number
       nothing more of that address is checked for a while (``failed_tries.py``). Whoever has signed rightly on a
       connection, by its address and port, goes on there in the same name. Doors tell when a connection ends.
    4. Keys, who has signed from where, and what was granted are remembered until users or policies change. What was
       refused is decided anew.

How a name and its signature come with a request, and what it needs, is for each door to know: ``guard.py`` for
remoting, ``proxy/services/authorization.py`` for gRPC.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, final

from ...common.clock import Clock
from ...common.ids import Address
from ...common.signing import SigningKey
from ..settings.security import SecurityConfig
from .decision import Need
from .failed_tries import FailedTries
from .tables import Security

NO_NAME: Final = "username cannot be null."
WRONG_SIGNATURE: Final = "check signature failed."
NOBODY: Final = "Authorization failed. Please verify your access rights and try again."
TOO_MANY_TRIES: Final = "too many wrong signatures came from this address, try again in a minute"
MOST_GRANTED: Final = 20_000
"""Grants that are remembered."""
MOST_NAMES: Final = 64
"""Users whom one connection is known to sign as."""
_NO_NAMES: Final = frozenset[str]()
_log = logging.getLogger(__name__)


@final
class AccessRefusedError(Exception):
    """A request is not served; its door answers with the text, which is upstream's."""

    def __init__(self, remark: str, *, is_shut_out: bool = False) -> None:
        super().__init__(remark)
        self.remark = remark
        self.is_shut_out = is_shut_out
        """Whether nothing was checked: the same may be served later."""


class Access:
    """Tells who asks and whether they may, and remembers what was granted.

    What is remembered is open to a door that has a shorter way for what was granted before: ``keys`` of users who may
    sign, ``granted``, and as whom each connection is ``known``. These tables stay the same objects.
    """

    def __init__(self, settings: SecurityConfig, security: Security, clock: Clock) -> None:
        self._settings = settings
        self._security = security
        self._tries = FailedTries(clock)
        self.keys: dict[str, SigningKey] = {}
        self.granted: set[object] = set()
        self.known: dict[Address, set[str]] = {}
        security.subscribe(self._forget)

    def __repr__(self) -> str:
        return f"<Access of {self._security!r}, {len(self.granted)} grants remembered>"

    @property
    def is_strict(self) -> bool:
        """Whether rights are asked for also where official servers ask for none."""
        return self._settings.is_strict

    def is_open(self, kind: str) -> bool:
        """Tell whether whoever asks for this need not be known; ``kind`` is its name on white lists."""
        return kind in self._settings.open_to_anybody

    def is_free(self, kind: str) -> bool:
        """Tell whether who asks for this needs nothing."""
        return not self._settings.authorizes or kind in self._settings.open_to_users

    def identify(
        self, name: str | None, fits: Callable[[SigningKey], bool], address: Address, *, is_open: bool = False
    ) -> str | None:
        """Return the user who asks; ``None`` for nobody who is known, where it ``is_open``.

        ``fits`` tells whether a key has made the signature.

        Raises:
            AccessRefusedError: nobody who is known asks for what is not open.
        """
        try:
            return self._identify(name, fits, address)
        except AccessRefusedError:
            if is_open:
                return None
            raise

    def _identify(self, name: str | None, fits: Callable[[SigningKey], bool], address: Address) -> str:
        if not name:
            raise AccessRefusedError(NO_NAME)
        is_known = name in self.known.get(address, _NO_NAMES)
        if not is_known and self._tries.blocked and self._tries.is_blocked(address[0]):
            raise AccessRefusedError(TOO_MANY_TRIES, is_shut_out=True)
        key = self.keys.get(name) or self._find_key(name)
        if key is None or not fits(key):
            if self._tries.note(address[0]):
                _log.warning("checking nothing more from %s for a while: too many wrong signatures", address[0])
            raise AccessRefusedError(f"User:{name} is not found." if key is None else WRONG_SIGNATURE)
        if not is_known:
            self._remember(name, address)
        return name

    def _find_key(self, name: str) -> SigningKey | None:
        """Return what a user signs with, ``None`` if there is no such user; raise if they may not sign."""
        user = self._security.find_user(name)
        if user is None:
            return None
        if user.is_disabled:
            raise AccessRefusedError(f"User:{name} is disabled.")
        key = self.keys[name] = SigningKey(user.password)
        return key

    def _remember(self, name: str, address: Address) -> None:
        names = self.known.setdefault(address, set())
        if len(names) < MOST_NAMES:
            names.add(name)

    def leave(self, address: Address) -> None:
        """Forget who has signed on a connection that has ended: the next one from its port is somebody else's."""
        self.known.pop(address, None)

    def authorize(self, name: str | None, needs: Iterable[Need], source_ip: str) -> None:
        """Raise unless a user may do all of this, ``None`` for nobody who is known.

        Raises:
            AccessRefusedError: something is not granted.
        """
        for need in needs:
            if name is None:
                raise AccessRefusedError(NOBODY)
            grant = name, need, source_ip
            if grant in self.granted:
                continue
            remark = self._security.refuse(name, need, source_ip)
            if remark is not None:
                raise AccessRefusedError(remark)
            self.grant(grant)

    def grant(self, grant: object) -> None:
        """Remember what was granted, until users or policies change."""
        if len(self.granted) >= MOST_GRANTED:
            self.granted.clear()
        self.granted.add(grant)

    def may(self, name: str, need: Need, source_ip: str) -> bool:
        """Tell whether a user may do one thing, which is not remembered: for what is asked of each entry of a list."""
        return self._security.refuse(name, need, source_ip) is None

    def _forget(self) -> None:
        """Remember nothing that users and policies have decided."""
        self.keys.clear()
        self.granted.clear()
        for names in self.known.values():
            names.clear()
