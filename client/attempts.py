"""What follows an attempt to send (Java's ``DefaultMQProducerImpl.sendDefaultImpl``), without sending.

    SEND_OK                                       result
    another status                                result, or the next attempt when the settings say so
    no connection, no answer, no known address    next attempt
    an error code of ``RETRIED_CODES``            next attempt
    any other error code                          the error, or the status of an earlier attempt

When attempts or time run out: the last status that was not SEND_OK, else the last error, with a note that lists
all attempts.
"""

from ..common.errors import ClientError, RemotingError, RequestTimeoutError, ResponseError
from ..common.message import MessageQueue
from ..remoting.codes import ResponseCode
from .results import SendResult, SendStatus

RETRIED_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)


class Attempts:
    """The attempts of one send so far."""

    __slots__ = ("_error", "_log", "_result", "_retries_bad_status", "failed_broker")

    def __init__(self, *, retries_bad_status: bool) -> None:
        self.failed_broker: str | None = None
        self._retries_bad_status = retries_bad_status
        self._result: SendResult | None = None
        self._error: RemotingError | ClientError | None = None
        self._log: list[str] = []

    def __repr__(self) -> str:
        return f"<Attempts {self._log}>"

    def ends_with(self, result: SendResult) -> bool:
        """Note an answered attempt; tell whether its result is the outcome."""
        if result.status is SendStatus.SEND_OK or not self._retries_bad_status:
            return True
        self.failed_broker = result.queue.broker_name
        self._result = result
        self._log.append(f"{result.queue.broker_name}: {result.status.value}")
        return False

    def may_follow(self, queue: MessageQueue, error: RemotingError | ClientError) -> bool:
        """Note a failed attempt; tell whether there may be another."""
        self.failed_broker = queue.broker_name
        self._error = error
        self._log.append(f"{queue.broker_name}: {error}")
        return not isinstance(error, ResponseError) or error.code in RETRIED_CODES

    def outcome(self) -> SendResult:
        """Return what is left when there is no further attempt.

        Raises:
            RemotingError, ClientError: nothing was stored as far as is known.
        """
        if self._result is not None:
            return self._result
        error = self._error or RequestTimeoutError("the time was over before the first attempt to send")
        if len(self._log) > 1:
            error.add_note(f"{len(self._log)} attempts: {'; '.join(self._log)}")
        raise error
