"""The adapter of the wire for which queues members read: requests 400 and 401 (pop.md §11)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from ...common.codes import ResponseCode
from ...common.errors import RocketletError
from ...common.message import MessageQueue
from ...common.names import RETRY_PREFIX
from ...common.outcome import Outcome
from ...remoting.bodies.body import decode_body, encode_body
from ...remoting.bodies.pop import AssignedQueue, AssignedQueues, AssignmentQuestion, RequestModeBody
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.transport.connection import Connection
from ...remoting.transport.event_loop import TaskScope
from ...remoting.transport.server import answers
from ..group.groups import RequestMode, RequestModeTable
from ..group.members import BROADCASTING, Members
from ..settings.pop import PopConfig
from ..topic.topic_routes import TopicRoutes
from .assignment import POP, PULL, Asking, Mode, Sharing, assign
from .revival import PopTables

_UNSAVED: Final = "done, but not saved: the log of the broker tells why"


class Saving(NamedTuple):
    """What waits is done by ``tasks``; ``save`` writes the tables that changed, and tells whether it could."""

    tasks: TaskScope
    save: Callable[[], Awaitable[bool]]


class AssignmentHandlers:
    """Tells members which queues they read, and takes how they shall read them."""

    def __init__(
        self,
        routes: TopicRoutes,
        members: Members[Connection],
        modes: RequestModeTable,
        tables: PopTables,
        config: Callable[[], PopConfig],
        saving: Saving,
    ) -> None:
        self._routes = routes
        self._members = members
        self._modes = modes
        self._tables = tables
        self._config = config
        self._saving = saving

    @answers(Code.QUERY_ASSIGNMENT)
    def query(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Tell which queues a client reads; where the topic is may have to be asked for."""
        asked = decode_body(AssignmentQuestion, command.body)
        queues = self._routes.known(asked.topic)
        if queues is not None:
            return self._answer(asked, queues)
        outcome: Outcome[Command] = Outcome()

        async def answer() -> None:
            try:
                outcome.answer_with(self._answer(asked, await self._routes.find(asked.topic)))
            except RocketletError as error:
                outcome.fail(error)

        self._saving.tasks.start(answer(), f"assign queues of {asked.topic}")
        return outcome

    def _answer(self, asked: AssignmentQuestion, queues: Sequence[MessageQueue]) -> Command:
        sharing = self._sharing(asked)
        found: Sequence[MessageQueue] | None
        if not queues:
            found = None
        elif asked.message_model == BROADCASTING or not self._config().assigns_queues:
            found = queues
        else:
            client_ids = self._members.client_ids(asked.consumer_group)
            asking = Asking(group=asked.consumer_group, client_ids=client_ids, client_id=asked.client_id or "")
            found = assign(queues, asking, sharing)
        told = None if found is None else [AssignedQueue(message_queue=queue, mode=sharing.mode) for queue in found]
        return Command.response(ResponseCode.SUCCESS, body=encode_body(AssignedQueues(message_queue_assignments=told)))

    def _sharing(self, asked: AssignmentQuestion) -> Sharing:
        said, config = self._modes.find(asked.topic, asked.consumer_group), self._config()
        strategy = asked.strategy_name or ""
        if said is not None:
            return Sharing(mode=_mode(said.mode), share=said.pop_share_queue_num, strategy=strategy)
        if asked.topic.startswith(RETRY_PREFIX):
            return Sharing(strategy=strategy)
        return Sharing(mode=_mode(config.default_mode), share=config.default_share, strategy=strategy)

    @answers(Code.SET_MESSAGE_REQUEST_MODE)
    def set_mode(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Have the members of a group pull or pop; answered when that is on the disk."""
        wanted = decode_body(RequestModeBody, command.body)
        if wanted.topic.startswith(RETRY_PREFIX):
            return Command.response(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._tables.topics.get(wanted.topic) is None:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist")
        if self._tables.groups.find(wanted.consumer_group) is None:
            return Command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        mode = RequestMode(
            consumer_group=wanted.consumer_group,
            mode=_mode(wanted.mode),
            pop_share_queue_num=wanted.pop_share_queue_num,
            topic=wanted.topic,
        )
        self._modes.put(wanted.topic, wanted.consumer_group, mode)
        outcome: Outcome[Command] = Outcome()

        async def save() -> None:
            is_saved = await self._saving.save()
            code, remark = (ResponseCode.SUCCESS, None) if is_saved else (ResponseCode.SYSTEM_ERROR, _UNSAVED)
            outcome.answer_with(Command.response(code, remark))

        self._saving.tasks.start(save(), f"save how {wanted.consumer_group} gets messages")
        return outcome


def _mode(name: str | None) -> Mode:
    return POP if name == POP else PULL
