"""The contract between whoever creates a topic and whoever makes it known (``Registration``)."""

from collections.abc import Callable, Sequence

from ...remoting.codec.command import Command
from ...remoting.codec.later import Encoded, Later

Announce = Callable[[Sequence[str], Later, Command | Encoded], None]
"""Save and register these topics, then pay the answer; name servers and disk get a second."""
