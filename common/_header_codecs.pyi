from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Raw

from .ids import Address
from .record import NewRecord
from .signing import SigningKey

_CommandT = TypeVar("_CommandT")

class StoredMessage(Protocol):
    @property
    def log_offset(self) -> int: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def property_text(self) -> bytes: ...

def scan_signed(
    text: Raw | bytes, body: bytes, version: int, names: tuple[str, ...]
) -> tuple[str, bytes, bytes, tuple[str | None, ...]] | None: ...

class Sha1Halves:
    def __init__(self, block: bytes, init: int, update: int, finish: int) -> None: ...
    def fits(self, signature: bytes, content: bytes) -> bool: ...

class ShortCheck:
    def __init__(
        self,
        code: int,
        names: tuple[str, ...],
        keys: dict[str, SigningKey],
        known: dict[Address, set[str]],
        granted: set[object] | None,
    ) -> None: ...
    def passes(self, text: Raw | bytes, body: bytes, version: int, address: Address) -> bool: ...

def read_send(
    text: Raw | bytes, body: bytes, born_host: bytes, own: bytes, needs_care: frozenset[bytes], make: type[NewRecord]
) -> NewRecord | None: ...
def answer_send(stored: StoredMessage, host_text: bytes, pieces: tuple[bytes, ...], opaque: int) -> bytes | None: ...
def cut_commands(
    data: bytes, position: int, most_total: int, commands: list[_CommandT], read: Callable[[bytes], _CommandT]
) -> int: ...
