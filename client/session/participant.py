"""A producer or consumer as its session sees it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from ...remoting.codec.command import Command
from ...remoting.headers.client import UnregisterClientHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.endpoint import Handler, Reply, refuse_unknown


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


def heartbeat_of(client_id: str, participants: Iterable[Participant], *, unit_mode: bool) -> HeartbeatData:
    """Return what brokers are told of those who take part."""
    heartbeat = HeartbeatData(client_id=client_id)
    for participant in participants:
        data = participant.consumer_data()
        if data is None:
            heartbeat.producer_data_set.append(ProducerData(group_name=participant.group))
        else:
            data.unit_mode = unit_mode
            heartbeat.consumer_data_set.append(data)
    return heartbeat


def answer_of(participants: Iterable[Participant], command: Command, connection: Connection) -> Reply:
    """Return what the first has to say that knows what a broker asks, else that nobody does."""
    for participant in participants:
        handler = participant.handlers.get(command.code)
        reply = None if handler is None else handler(command, connection)
        if reply is not None:
            return reply
    return refuse_unknown(command, connection)


def farewell_of(client_id: str, participant: Participant) -> UnregisterClientHeader:
    """Return what brokers are told when one of them ends."""
    if participant.consumer_data() is None:
        return UnregisterClientHeader(client_id=client_id, producer_group=participant.group)
    return UnregisterClientHeader(client_id=client_id, consumer_group=participant.group)


def key_of(participant: Participant) -> str:
    """Return what there may be one of in a session: a group in a role."""
    role = "producer" if participant.consumer_data() is None else "consumer"
    return f"{role} group {participant.group}"
