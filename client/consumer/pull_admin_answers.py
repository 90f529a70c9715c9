"""What a pull consumer tells administrators, and does for them."""

from collections.abc import Mapping

from msgspec.structs import replace

from ...common.message import MessageQueue, ReceivedMessage
from ...remoting.bodies.client import ConsumeType, OwnedQueue
from ..group.group_member import GroupMember
from ..session.settings import PullConsumerSettings
from .admin_callbacks import describe_buffered
from .fetch_buffer import FetchBuffer


class PullAdminAnswers:
    """The ``AdminAnswers`` of one ``PullConsumer``."""

    def __init__(self, member: GroupMember[FetchBuffer], settings: PullConsumerSettings) -> None:
        self._member = member
        self._settings = settings

    def __repr__(self) -> str:
        return f"<PullAdminAnswers of {self._member.group}>"

    def properties(self) -> Mapping[str, str]:
        """Return its settings by Java's names."""
        settings = self._settings
        return {
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
            "messageModel": "CLUSTERING",
            "autoCommit": str(settings.commits_itself).lower(),
            "autoCommitIntervalMillis": str(settings.commit_interval_ms),
            "pollTimeoutMillis": str(settings.poll_timeout_ms),
            "pullThresholdForAll": str(settings.max_buffered_messages),
        }

    def queues(self) -> Mapping[MessageQueue, OwnedQueue]:
        """Return what it tells of the queues that it owns."""
        return {buffer.queue: self._describe(buffer) for buffer in self._member.assigned.sinks}

    def _describe(self, buffer: FetchBuffer) -> OwnedQueue:
        return replace(
            describe_buffered(buffer.held, self._member.offsets.table.get(buffer.queue)),
            is_dropped=buffer.is_dropped,
            last_pull_timestamp=buffer.pulled_at_ms,
            last_consume_timestamp=buffer.handed_out_at_ms,
        )

    async def begin_anew(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere in owned queues, and store that: what was handed out of them counts no more."""
        member = self._member
        for queue, queue_offset in offsets.items():
            buffer = member.assigned.sink_of(queue)
            if buffer is not None:
                buffer.restart(queue_offset)
                member.assigned.pull_from(queue, queue_offset)
                member.offsets.table.seek(queue, queue_offset)
                await member.offsets.persist_now([queue])

    async def consume(self, _message: ReceivedMessage) -> None:
        """Tell that it has no listeners."""
