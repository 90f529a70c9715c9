"""Whether a producer or consumer may be used: not yet, now, or no more."""

import enum

from ..common.errors import ClientStateError


class LifeStage(enum.Enum):
    """The three stages, in order."""

    NEW = "is not started yet: enter it with async with"
    OPEN = "is open"
    CLOSED = "is closed"


class Life:
    """The stage of one object, and the errors of what comes too early or too late."""

    __slots__ = ("_owner", "stage")

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.stage = LifeStage.NEW

    def __repr__(self) -> str:
        return f"<{self._owner} {self.stage.value}>"

    @property
    def is_open(self) -> bool:
        """Whether it may be used now."""
        return self.stage is LifeStage.OPEN

    def begin(self) -> None:
        """Enter the second stage.

        Raises:
            ClientStateError: it has been entered before; make another object.
        """
        if self.stage is not LifeStage.NEW:
            raise ClientStateError(f"{self._owner} cannot be started again: it {self.stage.value}")
        self.stage = LifeStage.OPEN

    def end(self) -> None:
        """Enter the last stage."""
        self.stage = LifeStage.CLOSED

    def check(self) -> None:
        """Refuse a use outside the second stage.

        Raises:
            ClientStateError: it is too early or too late.
        """
        if self.stage is not LifeStage.OPEN:
            raise ClientStateError(f"{self._owner} {self.stage.value}")
