"""The adapter of the wire for administrators: topics, groups, cleaning, and how the broker is doing.

17   UPDATE_AND_CREATE_TOPIC                18   UPDATE_AND_CREATE_TOPIC_LIST
200  UPDATE_AND_CREATE_SUBSCRIPTIONGROUP    225  UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
351  GET_TOPIC_CONFIG                       352  GET_SUBSCRIPTIONGROUP_CONFIG
306  CLEAN_EXPIRED_CONSUMEQUEUE      316  CLEAN_UNUSED_TOPIC                  329  DELETE_EXPIRED_COMMITLOG
28   GET_BROKER_RUNTIME_INFO

Upstream: ``AdminBrokerProcessor`` (spec remoting.md §4.9, behaviour.md D.1, D.4). A list is taken as a whole or not at
all, by a broker that is killed meanwhile, too. Groups are answered when they are on the disk, topics when name servers
know them as well.
"""

from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from ...common.codes import ResponseCode
from ...common.errors import ConfigError, DecodeError, HeaderError
from ...common.metadata import SubscriptionGroupConfig, SubscriptionGroupList, TopicConfig, TopicConfigList
from ...common.names import broker_group_remark, broker_topic_remark, is_system_topic
from ...common.outcome import Outcome
from ...remoting.bodies.body import decode_body, decode_body_if_any, encode_body
from ...remoting.bodies.route import KVTable
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.frames import NO_ANSWER
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.client import CreateTopicHeader, GroupHeader, TopicHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ...store.files.file_sync import SlowStep
from ..group.groups import GroupTable
from ..outcomes.scheduler import Scheduler
from ..topic.topics import (
    MESSAGE_TYPE,
    TopicTable,
    change_attributes,
    change_listed_attributes,
    is_batch_topic,
)
from .cleaning import CleaningJob
from .runtime_info import RuntimeInfo

_LIGHT_QUEUE_PREFIX = "%LMQ%"
_MIXED = "MIXED"
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")  # a Java broker could not load another one from topics.json


MOST_LISTED = 4_096
"""Topics or groups in one request."""
Save = Callable[[], Awaitable[bool]]
"""``SaveJob.run_once``."""
_TopicChange = tuple[TopicConfig, Callable[[], dict[str, str]]]
"""A topic as it shall be but for its attributes, and what these become (raises ``ValueError``)."""


class AdminHandlers:
    """Reads and changes the tables of topics and groups, but not the topics that the broker made for itself."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        scheduler: Scheduler,
        own_topics: frozenset[str],
        cleaning: CleaningJob,
        save: Save,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._scheduler = scheduler
        self._own_topics = own_topics
        self._cleaning = cleaning
        self._save = save

    @answers(Code.UPDATE_AND_CREATE_TOPIC)
    def put_topic(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Create or change a topic; answered when the name servers know it."""
        header = decode_header(CreateTopicHeader, command)
        if header.topic_filter_type not in _FILTER_TYPES:
            raise HeaderError(f"topicFilterType = [{header.topic_filter_type}] value invalid")
        known = self._topics.get(header.topic)
        topic, change = _topic(header), partial(change_attributes, known and known.attributes, header.attributes or "")
        return self._put_topics([(topic, change)])

    @answers(Code.UPDATE_AND_CREATE_TOPIC_LIST)
    def put_topics(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Create or change topics, all or none; answered when the name servers know them."""
        wanted = decode_body(TopicConfigList, command.body).topic_config_list
        if len(wanted) > MOST_LISTED:
            raise DecodeError(f"the request has {len(wanted)} topics, limit is {MOST_LISTED}")
        changes: list[_TopicChange] = []
        for topic in wanted:
            if topic.topic_filter_type not in _FILTER_TYPES:
                raise DecodeError(f"topicFilterType = [{topic.topic_filter_type}] value invalid")
            known = self._topics.get(topic.topic_name)
            changes.append((topic, partial(change_listed_attributes, known and known.attributes, topic.attributes)))
        return self._put_topics(changes)

    def _put_topics(self, changes: Sequence[_TopicChange]) -> Command | Outcome[Command]:
        changed: list[TopicConfig] = []
        for topic, _ in changes:
            remark = self._refuse_topic(topic)
            if remark is not None:
                return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        for topic, change in changes:
            try:
                attributes = change()
            except ValueError as error:
                return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
            if attributes.get(MESSAGE_TYPE) == _MIXED and not self._topics.may_be_mixed:
                return Command.response(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
            changed.append(replace(topic, attributes=attributes))
        try:
            batch_topics = [topic.topic_name for topic in changed if is_batch_topic(topic.attributes)]
            self._scheduler.store.set_batch_topics(batch_topics)
        except ConfigError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
        for topic in changed:
            self._topics.put(topic)
        return self._scheduler.when_known(
            Command.response(ResponseCode.SUCCESS), [topic.topic_name for topic in changed]
        )

    def _refuse_topic(self, topic: TopicConfig) -> str | None:
        remark = broker_topic_remark(topic.topic_name)
        if remark is not None:
            return remark
        if topic.topic_name in self._own_topics or is_system_topic(topic.topic_name):
            return f"The topic[{topic.topic_name}] is conflict with system topic."
        if min(topic.read_queue_nums, topic.write_queue_nums) < 0:
            return f"queue numbers are {topic.read_queue_nums} and {topic.write_queue_nums}, the least is 0"
        return None

    @answers(Code.GET_TOPIC_CONFIG)
    def get_topic(self, command: Command, _connection: Connection) -> Command:
        """Tell the settings of one topic."""
        name = decode_header(TopicHeader, command).topic
        remark = f"No topic in this broker. topic: {name}"
        return _tell(self._topics.get(name), ResponseCode.TOPIC_NOT_EXIST, remark)

    @answers(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    def put_group(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Create or change a consumer group; nothing happens when there is none in the request."""
        group = decode_body_if_any(SubscriptionGroupConfig, command.body)
        return Command.response(ResponseCode.SUCCESS) if group is None else self._put_groups([group])

    @answers(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    def put_groups(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Create or change consumer groups, all or none."""
        wanted = decode_body(SubscriptionGroupList, command.body).group_config_list
        if len(wanted) > MOST_LISTED:
            raise DecodeError(f"the request has {len(wanted)} groups, limit is {MOST_LISTED}")
        return self._put_groups(wanted)

    def _put_groups(self, groups: Sequence[SubscriptionGroupConfig]) -> Command | Outcome[Command]:
        for group in groups:
            remark = broker_group_remark(group.group_name)
            if remark is not None:
                return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        for group in groups:
            self._groups.put(group)
        return answer_when_done(self._cleaning, lambda: answer_when_saved(self._save), f"save {len(groups)} groups")

    @answers(Code.GET_SUBSCRIPTIONGROUP_CONFIG)
    def get_group(self, command: Command, _connection: Connection) -> Command:
        """Tell the settings of one group, which is created if it may be."""
        name = decode_header(GroupHeader, command).group
        return _tell(self._groups.find(name), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")


def _tell(found: TopicConfig | SubscriptionGroupConfig | None, missing_code: int, missing_remark: str) -> Command:
    if found is None:
        return Command.response(missing_code, missing_remark)
    return Command.response(ResponseCode.SUCCESS, body=encode_body(found))


def _topic(header: CreateTopicHeader) -> TopicConfig:
    return TopicConfig(
        order=header.order,
        perm=header.perm,
        read_queue_nums=header.read_queue_nums,
        topic_filter_type=header.topic_filter_type,
        topic_name=header.topic,
        topic_sys_flag=header.topic_sys_flag or 0,
        write_queue_nums=header.write_queue_nums,
    )


class CleaningHandlers:
    """Answers what administrators ask to be cleaned: 306 and 316 when it is done, 329 at once, as Java does.

    306 does not touch the queues of system topics, 316 neither those nor light queues. 329 begins a round, and has
    expired log files deleted in the next ones at any hour.
    """

    def __init__(self, job: CleaningJob, topics: TopicTable, own_system: Container[str]) -> None:
        self._job = job
        self._topics = topics
        self._own_system = own_system

    @answers(Code.DELETE_EXPIRED_COMMITLOG)
    def delete_expired_log(self, _command: Command, _connection: Connection) -> Command:
        """Delete expired files of the log now."""
        self._job.cleaner.ask()
        if not self._job.is_at_work:
            self._job.start(self._round, "delete expired files")
        return Command.response(ResponseCode.SUCCESS)

    @answers(Code.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_expired_queues(self, command: Command, _connection: Connection) -> Outcome[Command]:
        """Remove queues that have lost all records."""
        return self._answer(command, lambda: self._job.cleaner.expired_queues(self._is_system))

    @answers(Code.CLEAN_UNUSED_TOPIC)
    def clean_unused_topics(self, command: Command, _connection: Connection) -> Outcome[Command]:
        """Remove the queues of topics that are not there."""
        return self._answer(command, lambda: self._job.cleaner.unused_topics(self._is_used))

    def _answer(self, command: Command, plan: Callable[[], Iterator[SlowStep]]) -> Outcome[Command]:
        async def clean() -> Command:
            await self._job.do(plan())
            return Command.response(ResponseCode.SUCCESS)

        return answer_when_done(self._job, clean, f"answer request {command.code}")

    async def _round(self) -> None:
        await self._job.run()

    def _is_system(self, topic: str) -> bool:
        return is_system_topic(topic) or topic in self._own_system

    def _is_used(self, topic: str) -> bool:
        return self._topics.get(topic) is not None or topic.startswith(_LIGHT_QUEUE_PREFIX) or self._is_system(topic)


class RuntimeInfoHandlers:
    """Answers with the figures of a running broker."""

    def __init__(self, info: RuntimeInfo) -> None:
        self._info = info

    @answers(Code.GET_BROKER_RUNTIME_INFO)
    def answer(self, _command: Command, _connection: Connection) -> Outcome[Command]:
        """Answer when the disks have been measured."""

        async def measure() -> Command:
            body = encode_body(KVTable(table=await self._info.measure()))
            return Command.response(ResponseCode.SUCCESS, body=body)

        return answer_when_done(self._info.cleaning, measure, "tell how the broker is doing")


def answer_when_done(job: CleaningJob, work: Callable[[], Awaitable[Command]], name: str) -> Outcome[Command]:
    """Begin some work that waits for the disk; return the outcome of its answer."""
    outcome: Outcome[Command] = Outcome()

    async def answer() -> None:
        reply = Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER)
        try:
            reply = await work()
        except OSError as error:
            reply = Command.response(ResponseCode.SYSTEM_ERROR, str(error))
        finally:
            outcome.answer_with(reply)

    job.start(answer, name)
    return outcome


async def answer_when_saved(save: Save, body: bytes = b"") -> Command:
    """Return the answer with a body once the changed tables are on the disk."""
    if await save():
        return Command.response(ResponseCode.SUCCESS, body=body)
    return Command.response(ResponseCode.SYSTEM_ERROR, "done, but not saved: the log of the broker tells why")
