"""Every error that rocketlet raises on purpose.

    RocketletError
      ConfigError             an option, key or value that cannot be used; the command line exits 2
        AddressInUseError     another socket listens at the address
      DecodeError             bytes or text that do not follow their format
        FrameError            a frame that ends its connection
          Http2Error          one of HTTP/2, with the code that the peer is told
        GrpcMessageError      what ends its call of gRPC, with the status that the peer is told
        RecordError           a stored record, a batch record or a property text
        JsonError             text outside the JSON dialect
        HeaderError           a header field that is missing or not what it must be
      StoreError              the files
        StoreInUseError       another process or object has the store open
        StoreDamagedError     damage that must not be repaired without being asked
        StoreNotWritableError the store takes no more writes
        StoreFullError        the disk takes no more bytes; nothing of the write was kept
          DiskFullError       the disk is fuller than the settings allow
        MessageIllegalError   a message that the store must refuse
      MessageRefusedError     a message that the broker must refuse, with the code and the remark of the answer
      BusyError               a request that was not begun, since it would have waited too long
      RemotingError           a call that got no answer
        ConnectFailedError    no connection to the address
        ConnectionClosedError the connection ended before the answer
        RequestTimeoutError   the answer did not come in time
          ReplyTimeoutError   the message was sent, and nobody replied to it in time
      ClientError             a call of the client API that failed
        ResponseError         the broker or name server answered with an error code
        RouteNotFoundError    no name server knows a broker for the topic
        ClientStateError      used before it was started or after it was closed
        DataLossError         messages that were to be read are not there any more
        SendRefusedError      one of many messages that nobody can send, or that a broker refuses
        NotSafeError          stored, but neither flushed nor copied as the broker is set to demand
        ConfigError           (see above) is also what a wrong client setting raises

A caller's own mistake (a wrong type, a value out of range) is ``TypeError`` or ``ValueError``.

``nearest`` makes the hint of an error about a name that is not there, "; did you mean topics?" for topiks, and nothing
where no known name is like it: a far guess would only send the reader astray.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final


class RocketletError(Exception):
    """Base of everything below."""


class ConfigError(RocketletError):
    """An option, key or value that cannot be used."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class AddressInUseError(ConfigError):
    """Another socket listens at the address."""

    def __init__(self, message: str, *, port: int, key: str = "listenPort") -> None:
        super().__init__(message, key=key)
        self.port = port


class DecodeError(RocketletError):
    """Bytes or text that do not follow their format."""


class FrameError(DecodeError):
    """A frame that cannot be read; the rest of its connection is lost."""


class Http2Error(FrameError):
    """A frame of HTTP/2 that ends its connection; ``code`` is what GOAWAY tells the peer."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class GrpcMessageError(DecodeError):
    """A message or a header of gRPC that ends its call; ``status`` is what the peer is told."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RecordError(DecodeError):
    """A stored record, batch record or property text that cannot be read."""


class JsonError(DecodeError):
    """Text that is outside the JSON dialect of RocketMQ."""


class HeaderError(DecodeError):
    """A field of a request's or answer's header that is missing or not what it must be."""


class StoreError(RocketletError):
    """Base of what the files can do to us."""


class StoreInUseError(StoreError):
    """Another process, or another object of this process, has the store open."""


class StoreDamagedError(StoreError):
    """Damage before valid data; names file and position. The text ends with the way on, ``finding`` does not."""

    def __init__(self, message: str, *, path: str, position: int, way_on: str = "") -> None:
        super().__init__(f"{message}; {way_on}" if way_on else message)
        self.finding = message
        self.path = path
        self.position = position

    def __reduce__(self) -> tuple[Any, ...]:  # it also reaches us from other processes
        return partial(type(self), path=self.path, position=self.position), (str(self),), self.__dict__


class StoreNotWritableError(StoreError):
    """The store takes no more writes."""


class StoreFullError(StoreNotWritableError):
    """The disk takes no more bytes; nothing of the refused write was kept."""


class DiskFullError(StoreFullError):
    """The disk is fuller than the settings allow; it has room, but not for more messages."""


class MessageIllegalError(StoreError):
    """A message that the store must refuse, such as one above the size limit."""


class MessageRefusedError(RocketletError):
    """A message that the broker must refuse; ``status`` is Java's name for it (``PutMessageStatus``)."""

    def __init__(self, code: int, remark: str, *, status: str = "UNKNOWN_ERROR") -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.status = status


class BusyError(RocketletError):
    """A request that was not begun, since it would have waited too long; nothing of it is stored."""


class RemotingError(RocketletError):
    """Base of calls that got no answer."""


class ConnectFailedError(RemotingError):
    """No connection to the address."""


class ConnectionClosedError(RemotingError):
    """The connection ended before the answer came."""


class RequestTimeoutError(RemotingError):
    """The answer did not come in time."""


class ReplyTimeoutError(RequestTimeoutError):
    """The message was sent, and nobody replied to it in time (Java's code 10006)."""


class ClientError(RocketletError):
    """Base of failed calls of the client API."""


class ResponseError(ClientError):
    """The broker or name server answered with an error code; ``answer`` says it without naming the server."""

    def __init__(self, code: int, remark: str | None, server: str = "", request: str = "") -> None:
        self.answer = f"answered {code}{f' to {request}' if request else ''}: {remark or 'no remark'}"
        super().__init__(f"{server} {self.answer}" if server else self.answer)
        self.code = code
        self.remark = remark


class RouteNotFoundError(ClientError):
    """No name server knows a broker for the topic."""


class ClientStateError(ClientError):
    """Used before it was started or after it was closed."""


class DataLossError(ClientError):
    """Messages that were to be read are not there any more."""


class SendRefusedError(ClientError):
    """A message that nobody can send, or that a broker refuses; ``number`` is what its sender calls it."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"message {number} cannot be sent: {reason}")
        self.number = number


class NotSafeError(ClientError):
    """The message was stored, but neither flushed nor copied as the broker is set to demand."""


_LIKE: Final = 0.6
# What Spark's Kafka source and sink call options and columns; of several names the first that is known counts.
_OF_KAFKA: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka.bootstrap.servers": ("nameserver",),
    "bootstrap.servers": ("nameserver",),
    "kafka.group.id": ("group",),
    "group.id": ("group",),
    "groupidprefix": ("group",),
    "kafka.security.protocol": ("tls",),
    "kafka.ssl.truststore.location": ("tlsTrustFile",),
    "kafka.ssl.keystore.location": ("tlsKeyFile",),
    "kafka.sasl.jaas.config": ("accessKey",),
    "kafkaconsumer.polltimeoutms": ("timeoutMs",),
    "fetchoffset.numretries": ("retries",),
    "fetchoffset.retryintervalms": ("retryIntervalMs",),
    "key": ("keys",),
    "value": ("body",),
    "headers": ("properties",),
    "partition": ("queueId", "shardingKey"),
    "offset": ("queueOffset",),
    "timestamp": ("storeTimestamp",),
}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?", or nothing when no known name is likely to be meant."""
    own = {each.lower(): each for each in known}
    for meant in _OF_KAFKA.get(name.lower(), ()):
        if meant.lower() in own:
            return f"; did you mean {meant}?"
    import difflib  # of use after a mistake only, and slow to import

    found = difflib.get_close_matches(name.lower(), own, n=1, cutoff=_LIKE)
    return f"; did you mean {own[found[0]]}?" if found else ""
