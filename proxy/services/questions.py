"""What administrators ask of consumers: where their threads are, and how they take a message out of turn.

    PrintThreadStackTraceCommand  ->  ThreadStackTrace
    VerifyMessageCommand          ->  VerifyMessageResult      how it went is the status beside it

Rules

    1. They go over telemetry. A question has a nonce that nobody can guess, and only the client that was asked can
       answer it, once. The Node.js client, which cannot verify, says so in the command itself.
    2. A client that has no stream is not asked. One that goes, or takes more than ``CALL_LIMIT_MS``, has not answered.

Upstream: ``GrpcClientChannel``, ``ClientActivity.reportThreadStackTrace`` and ``reportVerifyMessageResult``.
"""

import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ...broker.admin.guests import CALL_LIMIT_MS, Consumed
from ...common.clock import Clock, TimerHandle
from ...common.errors import BusyError, ConfigError, ConnectionClosedError, DecodeError, RequestTimeoutError
from ...common.outcome import Outcome
from ...common.properties import RETRY_TOPIC
from ...common.record import Record
from ..messages import v2
from ..messages.delivery import deliver
from ..messages.enums import Code
from ..messages.statuses import status
from .clients import GrpcClient

MOST_OPEN: Final = 1_024
AnswerT = TypeVar("AnswerT")
_ANSWERS: Final = frozenset({"thread_stack_trace", "verify_message_result", "verify_message_command"})
_CONSUMED: Final = {
    int(Code.OK): Consumed.SUCCEEDED,
    int(Code.FAILED_TO_CONSUME_MESSAGE): Consumed.FAILED,
    int(Code.MESSAGE_CORRUPTED): Consumed.CORRUPTED,
}


class _Question(NamedTuple):
    client_id: str
    take: Callable[[v2.TelemetryCommand], object]
    fail: Callable[[Exception], object]
    timer: TimerHandle


class ClientQuestions:
    """The questions that are not answered yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, _Question] = {}

    def __repr__(self) -> str:
        return f"<ClientQuestions {len(self._open)} open>"

    def ask_stacks(self, client: GrpcClient) -> Outcome[str]:
        """Ask a client where its threads are."""
        outcome: Outcome[str] = Outcome()

        def take(command: v2.TelemetryCommand) -> None:
            if command.status.code == Code.OK:
                outcome.answer_with(command.thread_stack_trace.thread_stack_trace)
            else:
                outcome.fail(DecodeError(f"it answers {command.status.code} {command.status.message}".rstrip()))

        nonce = secrets.token_hex(16)
        question = v2.PrintThreadStackTraceCommand(nonce=nonce)
        self._ask(client, nonce, v2.TelemetryCommand(print_thread_stack_trace_command=question), outcome, take)
        return outcome

    def ask_consumption(self, client: GrpcClient, record: Record) -> Outcome[Consumed]:
        """Have the listener of a client consume a message."""
        outcome: Outcome[Consumed] = Outcome()

        def take(command: v2.TelemetryCommand) -> None:
            outcome.answer_with(_CONSUMED.get(command.status.code, Consumed.UNSUPPORTED))

        nonce = secrets.token_hex(16)
        try:
            message = deliver(v2.Message(), record, record.properties.get(RETRY_TOPIC, record.topic))
        except (DecodeError, ConfigError) as error:
            outcome.fail(error)
            return outcome
        question = v2.VerifyMessageCommand(nonce=nonce, message=message)
        self._ask(client, nonce, v2.TelemetryCommand(verify_message_command=question), outcome, take)
        return outcome

    def take(self, client: GrpcClient, command: v2.TelemetryCommand) -> None:
        """Take what a client says that is no settings; it counts if it was asked."""
        kind = command.WhichOneof("command")
        nonce = getattr(command, kind).nonce if kind in _ANSWERS else ""
        question = self._open.get(nonce)
        if question is not None and question.client_id == client.client_id:
            self._forget(nonce)
            question.take(command)

    def gone(self, client_id: str) -> None:
        """Take in that a client will not answer any more."""
        for nonce, question in [*self._open.items()]:
            if question.client_id == client_id:
                self._forget(nonce)
                question.fail(ConnectionClosedError("the client has gone"))

    def _ask(
        self,
        client: GrpcClient,
        nonce: str,
        command: v2.TelemetryCommand,
        outcome: Outcome[AnswerT],
        take: Callable[[v2.TelemetryCommand], object],
    ) -> None:
        if client.stream is None:
            outcome.fail(ConnectionClosedError("the client has no telemetry stream"))
        elif len(self._open) >= MOST_OPEN:
            outcome.fail(BusyError(f"{MOST_OPEN} questions to clients are open"))
        else:
            timer = self._clock.call_at(self._clock.monotonic_ms() + CALL_LIMIT_MS, partial(self._expire, nonce))
            self._open[nonce] = _Question(client.client_id, take, outcome.fail, timer)
            outcome.on_drop = partial(self._forget, nonce)
            command.status.CopyFrom(status(Code.OK))
            client.stream.write(command)

    def _expire(self, nonce: str) -> None:
        question = self._open.pop(nonce)
        question.fail(RequestTimeoutError(f"no answer in {CALL_LIMIT_MS} ms"))

    def _forget(self, nonce: str) -> None:
        question = self._open.pop(nonce, None)
        if question is not None:
            question.timer.cancel()
