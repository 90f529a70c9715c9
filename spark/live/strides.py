"""How many messages to ask for at once, learned from the answers.

    asked 32, got 32, got 32, …        as long again; after some of these once twice as long, to find out
    asked 32, got 20                   20 from now on
    asked 64 on trial, got 32          32 as before, and the next trial comes later

A broker that permits more than was asked for is found out soon, and one that does not costs one more pull now and then.
"""

from dataclasses import dataclass
from typing import Final

MOST_MESSAGES: Final = 1024
_FIRST_PATIENCE: Final = 16
_LONGEST_PATIENCE: Final = 1024


@dataclass
class Strides:
    """The length of chunks; ``patience`` full answers come before each trial."""

    length: int = 32
    full: int = 0
    patience: int = _FIRST_PATIENCE

    def next_length(self) -> int:
        """Return how many messages to ask for."""
        if self.full < self.patience or self.length == MOST_MESSAGES:
            return self.length
        self.full = 0
        return min(2 * self.length, MOST_MESSAGES)

    def learn(self, asked: int, got: int) -> None:
        """Take note of what was asked for and how much of it the first answer covered."""
        if asked > self.length:
            if got >= asked:
                self.length, self.patience = asked, _FIRST_PATIENCE
            else:
                self.patience = min(2 * self.patience, _LONGEST_PATIENCE)
        elif got < asked:
            self.length, self.full = max(got, 1), 0
        else:
            self.full += 1
