"""What follows an attempt to send (Java's ``DefaultMQProducerImpl.sendDefaultImpl``), without sending.

    SEND_OK                                       result
    another status                                result, or the next attempt when the settings say so
    no connection, no answer, no known address    next attempt
    an error code of ``RETRIED_CODES``            next attempt
    any other error code                          the error, or the status of an earlier attempt

When attempts or time run out: the last status that was not SEND_OK, else the last error, with a note that lists
all attempts.
"""

from ...common.errors import ClientError, RemotingError, RequestTimeoutError, ResponseError
from ...common.message import MessageQueue
from ...remoting.codec.codes import ResponseCode
from ..session.results import SendResult, SendStatus

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


_SEND_OK = SendStatus.SEND_OK  # to look up a member of an enum takes as long as four calls


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

    def __len__(self) -> int:
        """Return how many have failed, in one way or the other."""
        return len(self._log)

    def is_last(self, queue: MessageQueue, outcome: SendResult | RemotingError | ClientError) -> bool:
        """Note what has come of an attempt; tell whether no other may follow it."""
        if isinstance(outcome, SendResult):
            self._result = outcome
            if outcome.status is _SEND_OK or not self._retries_bad_status:
                return True
            queue, what = outcome.queue, outcome.status.value
        else:
            self._error, what = outcome, str(outcome)
        self.failed_broker = queue.broker_name
        self._log.append(f"{queue.broker_name}: {what}")
        return isinstance(outcome, ResponseError) and outcome.code not in RETRIED_CODES

    def outcome(self) -> SendResult:
        """Return the result when there is no further attempt.

        Raises:
            RemotingError, ClientError: nothing was stored as far as is known.
        """
        if self._result is not None:
            return self._result
        error = self._error or RequestTimeoutError("the time was over before the first attempt to send")
        if len(self._log) > 1:
            error.add_note(f"{len(self._log)} attempts: {'; '.join(self._log)}")
        raise error
