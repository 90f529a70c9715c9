"""Puts letters, which are messages on their way, into parcels, which are the requests that they travel in.

Example: 3 letters of topic A and a late one of topic A become two parcels; 300 letters of topic B with 128 in a parcel
become three. Letters of one queue keep their order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ...common.message import Message, MessageQueue
from ...common.names import RETRY_PREFIX
from .selection import select_by_hash

_LARGE_PROPERTIES: Final = 8_192


class Letter(NamedTuple):
    """A message on its way; ``number`` is what an error calls it."""

    message: Message
    number: int
    sharding_key: str | None = None


class Parcel(NamedTuple):
    """Letters that travel in one request, to a queue of their own or to the next of the round."""

    letters: Sequence[Letter]
    queue: MessageQueue | None

    @property
    def topic(self) -> str:
        """The topic of them all."""
        return self.letters[0].message.topic


class Packer:
    """Puts letters of one topic and queue together, up to these limits; what is large or late goes alone."""

    def __init__(self, most_messages: int, most_bytes: int, large_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._large_bytes = large_bytes

    def pack(self, letters: Iterable[Letter], queues: Mapping[str, Sequence[MessageQueue]]) -> Iterator[Parcel]:
        """Yield the parcels; ``queues`` holds those of topics for which there are sharding keys."""
        begun: dict[tuple[str, MessageQueue | None], tuple[list[Letter], int]] = {}
        for letter in letters:
            queue = _queue_of(letter, queues)
            gathered, gathered_bytes = begun.pop((letter.message.topic, queue), ([], 0))
            properties_bytes = sum(len(name) + len(value) for name, value in letter.message.properties.items())
            size = gathered_bytes + len(letter.message.body) + properties_bytes
            goes_alone = properties_bytes > _LARGE_PROPERTIES or self._goes_alone(letter.message)
            if gathered and (goes_alone or size > self._most_bytes):
                yield Parcel(gathered, queue)
                gathered, size = [], size - gathered_bytes
            gathered.append(letter)
            if goes_alone or len(gathered) >= self._most_messages:
                yield Parcel(gathered, queue)
            else:
                begun[letter.message.topic, queue] = gathered, size
        for (_, queue), (gathered, _) in begun.items():
            yield Parcel(gathered, queue)

    def _goes_alone(self, message: Message) -> bool:
        return message.is_late or len(message.body) >= self._large_bytes or message.topic.startswith(RETRY_PREFIX)


def _queue_of(letter: Letter, queues: Mapping[str, Sequence[MessageQueue]]) -> MessageQueue | None:
    if letter.sharding_key is None:
        return None
    choice = queues.get(letter.message.topic)
    return select_by_hash(choice, letter.message, letter.sharding_key) if choice else None
