"""Where a slave's master is: what name servers say in their answers to registrations (spec replication.md §7, §8).

Rules

    1. Who says last where it is counts. It is gone when no name server knows it any more, by the last answer of each.
    2. The address of its HA port stays when it is gone, so that the copy goes on with the master that comes back;
       ``haMasterAddress`` stands above all answers.
    3. Where it is by the settings (``masterAddress``) counts until a name server has answered.
    4. On a master nobody tells anything, and both addresses are empty.
"""

import asyncio
import logging
from collections.abc import Callable

from ..settings.replication import ReplicationConfig

_log = logging.getLogger(__name__)


class KnownMaster:
    """The addresses of the master: ``address`` for requests, empty while it is gone, and that of its HA port.

    ``last_address`` stays when it is gone.
    """

    def __init__(self, config: ReplicationConfig) -> None:
        self.is_needed = config.is_slave
        """Whether the broker is a slave."""
        self.address = self.last_address = config.master_address
        self._ha_address = self._named = config.named_master
        self._told: dict[str, str] = {}
        self._subscribers: list[Callable[[], object]] = []
        self._is_known = asyncio.Event()
        if self._named:
            self._is_known.set()

    def __repr__(self) -> str:
        return f"<KnownMaster {self.address or 'gone'}, HA {self._ha_address or 'unknown'}>"

    @property
    def is_gone(self) -> bool:
        """Whether name servers have answered, and none of them knows it."""
        return bool(self._told) and not self.address

    @property
    def ha_address(self) -> str:
        """The address of its HA port, empty while nobody has said it."""
        return self._ha_address

    def subscribe(self, changed: Callable[[], object]) -> None:
        """Have somebody called when ``address`` has become another one, or ``is_gone`` has."""
        self._subscribers.append(changed)

    def tell(self, nameserver: str, address: str | None, ha_address: str | None) -> None:
        """Take over what a name server has said; ``None`` when it knows no master."""
        before, was_gone = self.address, self.is_gone
        self._told[nameserver] = address or ""
        self.address = address or next(filter(None, self._told.values()), "")
        self.last_address = self.address or self.last_address
        if self.address and before not in ("", self.address):
            text = "the master is at %s, it was at %s: two have the name of this broker, unless it was moved"
            _log.warning(text, self.address, before)
        elif self.address and not before:
            _log.info("the master is at %s, its log at %s", self.address, self._named or ha_address)
        elif before and not self.address:
            _log.warning("no name server knows the master that was at %s", before)
        if ha_address:
            self.learn_ha_address(ha_address)
        has_changed = (self.address, self.is_gone) != (before, was_gone)
        for changed in self._subscribers if has_changed else ():
            changed()

    def learn_ha_address(self, ha_address: str, address: str | None = None) -> None:
        """Take over where its HA port is, unless the settings say it, and where the records there can be asked for."""
        self.last_address = address or self.last_address
        if not self._named:
            self._ha_address = ha_address
            self._is_known.set()

    async def wait_ha_address(self) -> str:
        """Return where the log is copied from, once that is known."""
        await self._is_known.wait()
        return self._ha_address
