"""A producer or consumer as its session sees it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..remoting.bodies_client import ConsumerData
from ..remoting.service import Handler


class Participant(Protocol):
    """What takes part in the heartbeats, notices and requests of a session."""

    @property
    def group(self) -> str:
        """The name of its group."""
        ...

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What it answers when a broker asks, by request code; None as a reply leaves the request to others."""
        ...

    def topics(self) -> Sequence[str]:
        """Return the topics whose routes are kept fresh for it."""
        ...

    def consumer_data(self) -> ConsumerData | None:
        """Return what heartbeats say of a consumer; None for a producer."""
        ...

    def route_changed(self, topic: str, /) -> None:
        """Learn that a topic has other queues or brokers."""
        ...

    def members_changed(self) -> None:
        """Learn that members may have come or gone."""
        ...


def key_of(participant: Participant) -> str:
    """Return what there may be one of in a session: a group in a role."""
    role = "producer" if participant.consumer_data() is None else "consumer"
    return f"{role} group {participant.group}"
