"""What a push consumer tells administrators, and does for them."""

from collections.abc import Mapping

from msgspec.structs import replace

from ...common.message import MessageQueue, ReceivedMessage
from ...remoting.bodies.client import ConsumedDirectly, ConsumeType, DirectResult, OwnedQueue
from ..group.consumer_hooks import ListenerOutcome
from ..group.group_member import GroupMember
from ..group.process_queue import PushQueue
from ..session.results import ConsumeResult
from .admin_callbacks import describe_buffered
from .listeners import ConsumeEnvironment
from .orderly_consume import HeldQueueLocks

_RESULTS = {
    ConsumeResult.SUCCESS: DirectResult.CR_SUCCESS,
    ConsumeResult.RETRY: DirectResult.CR_LATER,
    ConsumeResult.COMMIT: DirectResult.CR_COMMIT,
    ConsumeResult.ROLLBACK: DirectResult.CR_ROLLBACK,
}


class PushAdminAnswers:
    """The ``AdminAnswers`` of one ``PushConsumer``."""

    def __init__(
        self, member: GroupMember[PushQueue], environment: ConsumeEnvironment, locks: HeldQueueLocks | None
    ) -> None:
        self._member = member
        self._environment = environment
        self._locks = locks

    def __repr__(self) -> str:
        return f"<PushAdminAnswers of {self._member.group}>"

    def properties(self) -> Mapping[str, str]:
        """Return its settings by Java's names."""
        settings = self._environment.settings
        return {
            "PROP_THREADPOOL_CORE_SIZE": str(settings.concurrency),
            "PROP_CONSUMEORDERLY": str(settings.is_orderly).lower(),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
            "messageModel": "BROADCASTING" if settings.is_broadcast else "CLUSTERING",
            "consumeMessageBatchMaxSize": str(settings.batch_messages),
            "maxReconsumeTimes": str(settings.max_retries),
        }

    def queues(self) -> Mapping[MessageQueue, OwnedQueue]:
        """Return what it tells of the queues that it owns."""
        return {sink.queue: self._describe(sink) for sink in self._member.assigned.sinks}

    def _describe(self, sink: PushQueue) -> OwnedQueue:
        locked_at_ms = None if self._locks is None else self._locks.confirmed_at_ms(sink.queue)
        return replace(
            describe_buffered(sink.unfinished, self._member.offsets.table.get(sink.queue)),
            locked=locked_at_ms is not None,
            last_lock_timestamp=locked_at_ms or 0,
            is_dropped=sink.is_dropped,
            last_pull_timestamp=sink.pulled_at_ms,
            last_consume_timestamp=sink.moved_at_ms,
        )

    async def begin_anew(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Take queues anew; what listeners still finish of them does not count."""
        share = self._member.assigned
        for queue in set(offsets).intersection(share.queues):
            share.stop_pulling([queue])
            await share.retake(queue, offsets[queue])
        self._member.rebalance.wake()

    async def consume(self, message: ReceivedMessage) -> ConsumedDirectly:
        """Call the listener of the topic, and tell how that ended."""
        environment = self._environment
        handler = environment.handlers.get(message.topic)
        begun_at_ms = environment.clock.monotonic_ms()
        if handler is None:
            outcome: ListenerOutcome = LookupError(f"no listener for the topic {message.topic}")
        else:
            outcome = await environment.calls.attempt(handler, [message])
        return ConsumedDirectly(
            order=environment.settings.is_orderly,
            auto_commit=environment.settings.commits_itself,
            consume_result=_result_of(outcome),
            remark=f"{type(outcome).__name__}: {outcome}" if isinstance(outcome, BaseException) else None,
            spent_ms=environment.clock.monotonic_ms() - begun_at_ms,
        )


def _result_of(outcome: ListenerOutcome) -> DirectResult:
    if outcome is None:
        return DirectResult.CR_SUCCESS
    if isinstance(outcome, BaseException):
        return DirectResult.CR_THROW_EXCEPTION
    return _RESULTS[outcome] if isinstance(outcome, ConsumeResult) else DirectResult.CR_LATER
