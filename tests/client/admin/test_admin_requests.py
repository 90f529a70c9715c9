"""What the administrator's client asks of which server, call by call, and what it makes of the answers.

``requests.txt`` holds a paragraph for each call: its name, the requests in their order (server, code, header fields,
body), and the result. Cluster C has the brokers a and b, with one and two queues of T; broker c of cluster D is a slave
alone, and of ghost no address is known.
"""

import json
import pathlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest
from push_bench import HOST, pulled
from scripted_cluster import Answer, ScriptedCluster, ScriptedServer, offset_of, refused, scripted_server

from rocketlet.client import Admin, GroupSettings, MessageQueue, TopicSettings
from rocketlet.client.admin.admin_values import QueueProgress
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError, RequestTimeoutError, RocketletError
from rocketlet.common.ids import encode_host, format_offset_id
from rocketlet.common.message import ReceivedMessage
from rocketlet.common.record import NewRecord, encode_record
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import TaskScope
from rocketlet.testing import ManualClock

FIRST, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "b", 1)


async def read(admin: Admin, **options: Any) -> list[ReceivedMessage]:
    """Return the messages of T."""
    return [message async for message in admin.messages("T", **options)]


CALLS: dict[str, Callable[[Admin], Any]] = {
    "brokers": Admin.brokers,
    "brokers D": lambda admin: admin.brokers("D"),
    "brokers X": lambda admin: admin.brokers("X"),
    "topics": lambda admin: admin.topics(),
    "topics C": lambda admin: admin.topics("C"),
    "queues T": lambda admin: admin.queues("T"),
    "topic T": lambda admin: admin.topic("T"),
    "topic missing": lambda admin: admin.topic("missing"),
    "create T": lambda admin: admin.create_topic("T", cluster="C"),
    "create T with settings": lambda admin: admin.create_topic(
        "T",
        TopicSettings(read_queues=3, write_queues=2, can_write=False, attributes={"b": "2", "a": "1"}),
        brokers=["b"],
    ),
    "create T to write only": lambda admin: admin.create_topic("T", TopicSettings(can_read=False), brokers=["b"]),
    "create T on c": lambda admin: admin.create_topic("T", brokers=["c", "b"]),
    "create T in D": lambda admin: admin.create_topic("T", cluster="D"),
    "create T of a dict": lambda admin: admin.create_topic("T", {}),  # pyright: ignore[reportArgumentType] # shown
    "create a topic that is routed late": lambda admin: admin.create_topic("late", cluster="C"),
    "delete T": lambda admin: admin.delete_topic("T"),
    "forbid writes": lambda admin: admin.forbid_writes("a"),
    "allow writes": lambda admin: admin.allow_writes("a"),
    "groups": lambda admin: admin.groups(),
    "group g": lambda admin: admin.group("g", "C"),
    "create group": lambda admin: admin.create_group("g"),
    "create group with settings": lambda admin: admin.create_group(
        "g",
        GroupSettings(can_consume=False, can_broadcast=False, retries=3, retry_queues=0, tells_members=False),
        cluster="C",
    ),
    "delete group": lambda admin: admin.delete_group("g"),
    "delete group with offsets": lambda admin: admin.delete_group("g", with_offsets=True, cluster="C"),
    "members g": lambda admin: admin.members("g"),
    "members old": lambda admin: admin.members("old", "C"),
    "members broken": lambda admin: admin.members("broken"),
    "progress": lambda admin: admin.progress("g", "T"),
    "offsets": lambda admin: admin.offsets("T"),
    "offsets at 5": lambda admin: admin.offsets_at("T", 5),
    "reset moved to begin": lambda admin: admin.reset_to_begin("moved", "T"),
    "reset moved to end": lambda admin: admin.reset_to_end("moved", "T"),
    "reset moved to 0": lambda admin: admin.reset_to_time("moved", "T", 0),
    "reset idle to begin": lambda admin: admin.reset_to_begin("idle", "T"),
    "reset idle to end": lambda admin: admin.reset_to_end("idle", "T"),
    "reset idle to 5": lambda admin: admin.reset_to_time("idle", "T", 5),
    "reset g to end": lambda admin: admin.reset_to_end("g", "T"),
    "reset to -1": lambda admin: admin.reset_to_time("idle", "T", -1),
    "reset to text": lambda admin: admin.reset_to_time("idle", "T", "5"),  # pyright: ignore[reportArgumentType] # shown
    "reset idle": lambda admin: admin.reset("idle", {FIRST: 3, OTHER: 0}),
    "reset idle below 0": lambda admin: admin.reset("idle", {FIRST: 3, OTHER: -1}),
    "reset missing topic": lambda admin: admin.reset("idle", {MessageQueue("missing", "a", 0): 3}),
    "reset g": lambda admin: admin.reset("g", {FIRST: 3}),
    "copy offsets": lambda admin: admin.copy_offsets("idle", "other", "T"),
    "figures": lambda admin: admin.figures("b"),
    "figures of c": lambda admin: admin.figures("c"),
    "delete files": lambda admin: admin.delete_expired_files("a"),
    "message by unique key": lambda admin: admin.message("T", "KEY2"),
    "message by unknown key": lambda admin: admin.message("T", "KEY9"),
    "messages by key": lambda admin: admin.messages_by_key("T", "k"),
    "messages by key, two": lambda admin: admin.messages_by_key("T", "k", max_messages=2),
    "messages by key, some time": lambda admin: admin.messages_by_key("T", "k", begin_ms=20, end_ms=30),
    "messages by key, none": lambda admin: admin.messages_by_key("T", "k", max_messages=0),
    "messages": read,
    "all producers": lambda admin: admin.all_producers(),
    "messages of some time": lambda admin: read(admin, begin_ms=20, end_ms=40),
    "messages with tags": lambda admin: read(admin, expression="x || y"),
}
REQUESTS = pathlib.Path(__file__).parent / "requests.txt"


def record(queue_id: int, queue_offset: int, at_ms: int, *, topic: str = "T", key: str = "k") -> bytes:
    """Return a stored record; its number is in its body and its unique key."""
    text = f"KEYS\x01{key}\x02UNIQ_KEY\x01KEY{queue_offset}\x02".encode()
    new = NewRecord(topic, queue_id, b"%d" % queue_offset, text, {}, 0, 0, 0, HOST)
    return encode_record(new, queue_offset, 100 * queue_offset, at_ms, HOST)


def answer(value: object) -> Callable[[Command], Command]:
    """Return what answers with a body."""
    return lambda _: Command.response(ResponseCode.SUCCESS, body=json.dumps(value).encode())


def connections(command: Command) -> Command:
    """Answer who is in a group: g has two members, an old broker does not know the request, others have none."""
    match command.ext["consumerGroup"]:
        case "g":
            one = {"clientAddr": "10.0.0.1:5", "clientId": "one", "language": "JAVA", "version": 477}
            body = {"connectionSet": [{"clientId": "two"}, one]}
            return Command.response(ResponseCode.SUCCESS, body=json.dumps(body).encode())
        case "old":
            return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        case "broken":
            return Command.response(ResponseCode.NO_PERMISSION, "not for you")
        case _:
            return Command.response(ResponseCode.CONSUMER_NOT_ONLINE, "nobody is online")


def move(command: Command) -> Command:
    """Answer a reset: only ``moved`` can be moved by its broker."""
    if command.ext["group"] != "moved":
        return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
    table = b'{"brokerName":"b","queueId":1,"topic":"%RETRY%x"}:7,{"brokerName":"a","queueId":0,"topic":""}:5'
    return Command.response(ResponseCode.SUCCESS, body=b'{"offsetTable":{%b}}' % table)


def pull(command: Command) -> Command:
    """Answer a pull of b's queue 1 with three messages of six, then three; of its queue 0 with none."""
    if command.ext["queueId"] == "0":
        return pulled(9, code=ResponseCode.PULL_NOT_FOUND)
    first = int(command.ext["queueOffset"])
    numbers = range(first, 6) if first >= 3 else range(first, 3)
    return pulled(numbers[-1] + 1, b"".join(record(1, number, 10 * number) for number in numbers))


A: dict[int, Answer] = {
    RequestCode.GET_TOPIC_CONFIG: answer(
        {"topicName": "T", "readQueueNums": 0, "writeQueueNums": 7, "perm": 4, "attributes": {"x": "y"}}
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer(
        {
            "subscriptionGroupTable": {
                "g": {"groupName": "g", "consumeEnable": False, "retryMaxTimes": -1, "retryQueueNums": 3},
                "z": {"groupName": "z"},
            }
        }
    ),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: connections,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: answer({"consumerIdList": ["two", "one"]}),
    RequestCode.GET_ALL_PRODUCER_INFO: answer(
        {"data": {"p": [{"clientId": "two"}, {"clientId": "one", "remoteIP": "/10.0.0.1:5", "language": "JAVA"}]}}
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: move,
    RequestCode.QUERY_CONSUMER_OFFSET: lambda _: offset_of(5),
    RequestCode.GET_MIN_OFFSET: lambda _: offset_of(2),
    RequestCode.GET_MAX_OFFSET: lambda _: offset_of(9),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda _: offset_of(6),
    RequestCode.QUERY_MESSAGE: lambda _: Command.response(0, body=record(0, 2, 20) + record(0, 1, 30)),
    RequestCode.PULL_MESSAGE: lambda _: pulled(10, record(0, 8, 8) + record(0, 9, 9)),
}
B: dict[int, Answer] = {
    **A,
    RequestCode.GET_TOPIC_CONFIG: refused(ResponseCode.TOPIC_NOT_EXIST),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer(
        {"subscriptionGroupTable": {"y": {"groupName": "y"}, "g": {"groupName": "g", "retryQueueNums": -1}}}
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: refused(ResponseCode.SYSTEM_ERROR),
    RequestCode.GET_ALL_PRODUCER_INFO: refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
    RequestCode.QUERY_CONSUMER_OFFSET: refused(ResponseCode.QUERY_NOT_FOUND),
    RequestCode.GET_MIN_OFFSET: lambda _: offset_of(0),
    RequestCode.GET_MAX_OFFSET: lambda _: offset_of(5),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda _: offset_of(0),
    RequestCode.QUERY_MESSAGE: lambda _: Command.response(
        0,
        body=record(1, 3, 20) + record(1, 4, 19) + record(0, 5, 5, topic="U") + record(0, 6, 5, key="kk"),
    ),
    RequestCode.PULL_MESSAGE: pull,
    RequestCode.GET_BROKER_RUNTIME_INFO: answer({"table": {"putTps": "1.0"}}),
}


class Servers:
    """Two name servers and two brokers."""

    def __init__(self, cluster: ScriptedCluster, other: ScriptedServer) -> None:
        self.address = f"{cluster.nameserver.address};{other.address}"
        self.nameservers = (cluster.nameserver, other)
        self._named = {"names": self.nameservers} | {name: (broker,) for name, broker in cluster.brokers.items()}
        self._addresses = {broker.address: name for name, broker in cluster.brokers.items()}

    def told(self) -> str:
        """Return what each was asked, a line for a request."""
        lines = [
            f"{name} {command.code} {' '.join(f'{key}={value}' for key, value in sorted(command.ext.items()))}".rstrip()
            + (f" {command.body.decode()}" if command.body else "")
            for name, servers in self._named.items()
            for server in sorted(servers, key=lambda each: -len(each.requests))
            for command in server.requests
        ]
        return "\n".join(lines)

    def show(self, value: object) -> str:
        """Return the text of a result, with the names of brokers for their addresses."""
        match value:
            case list():
                return "[" + ", ".join(map(self.show, cast("list[object]", value))) + "]"
            case ReceivedMessage():
                return f"{value.queue.broker_name}/{value.queue.queue_id}/{value.queue_offset} at {value.stored_at_ms}"
            case RocketletError() | ValueError() | TypeError():
                text = f"{type(value).__name__}: {value}"
            case _:
                text = repr(value)
        for address, name in self._addresses.items():
            text = text.replace(address, name)
        return text


def kept_offsets(answers: dict[int, Answer]) -> dict[int, Answer]:
    """Return answers that know an offset again which was stored."""
    stored: dict[tuple[str, str], int] = {}

    def place(command: Command) -> tuple[str, str]:
        return command.ext["consumerGroup"], command.ext["queueId"]

    def store(command: Command) -> Command:
        stored[place(command)] = int(command.ext["commitOffset"])
        return Command.response(ResponseCode.SUCCESS)

    def tell(command: Command) -> Any:
        known = stored.get(place(command))
        return answers[RequestCode.QUERY_CONSUMER_OFFSET](command) if known is None else offset_of(known)

    return {RequestCode.UPDATE_CONSUMER_OFFSET: store, RequestCode.QUERY_CONSUMER_OFFSET: tell}


@pytest.fixture
async def servers(cluster: ScriptedCluster) -> AsyncGenerator[Servers]:
    """Yield the servers."""
    cluster.routes |= {"T": {"a": 1, "b": 2}, "late": {"a": 1}}
    a, b = [await cluster.add_broker(name, answers | kept_offsets(answers)) for name, answers in (("a", A), ("b", B))]
    nodes: dict[str, Any] = {
        name: {"brokerName": name, "brokerAddrs": {"0": each.address}} for name, each in (("b", b), ("a", a))
    }
    nodes["a"]["brokerAddrs"] = {"2": "10.0.0.9:1", **nodes["a"]["brokerAddrs"]}
    nodes["c"] = {"brokerName": "c", "brokerAddrs": {"1": "10.0.0.9:2"}}
    clusters = {"D": ["c"], "C": ["ghost", "b", "a"]}
    async with scripted_server("another name server") as other:
        for server in (cluster.nameserver, other):
            server.answers |= cluster.nameserver.answers | {
                RequestCode.GET_BROKER_CLUSTER_INFO: answer({"brokerAddrTable": nodes, "clusterAddrTable": clusters}),
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: answer({"topicList": ["b", "a", "b"]}),
                RequestCode.GET_TOPICS_BY_CLUSTER: answer({"topicList": ["z"]}),
            }
        yield Servers(cluster, other)


@pytest.mark.parametrize("name", CALLS)
async def test_call_asks_the_right_servers(
    name: str, servers: Servers, cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the header that it has to have; results, and errors, say what was answered."""
    known = cluster.nameserver.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

    def answer_route(command: Command) -> Any:
        if len(cluster.routes["late"]) < 2 and sum(map(len, (each.requests for each in servers.nameservers))) > 3:
            cluster.routes["late"] = {"a": 1, "b": 1}
        return known(command)

    for server in servers.nameservers:
        server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = answer_route
    async with Admin(servers.address) as admin:
        try:
            result = await CALLS[name](admin)
        except (RocketletError, ValueError, TypeError) as error:
            result = error
    paragraph = "\n".join(filter(None, [name, servers.told(), f"= {servers.show(result)}"]))

    assert paragraph in REQUESTS.read_text().rstrip("\n").split("\n\n")


async def test_message_is_asked_of_the_broker_that_its_id_names(servers: Servers, cluster: ScriptedCluster) -> None:
    """By its place in the log; a broker that has nothing there, or a message of another topic, is no error."""
    a, b = cluster.brokers.values()
    a.answers[RequestCode.VIEW_MESSAGE_BY_ID] = lambda _: Command.response(0, body=record(0, 2, 20))
    b.answers[RequestCode.VIEW_MESSAGE_BY_ID] = refused(ResponseCode.SYSTEM_ERROR)
    async with Admin(servers.address) as admin:
        found = await admin.message("T", offset_id(a, 200))
        assert found is not None
        assert servers.show(found) == "a/0/2 at 20"
        [asked] = a.asked(RequestCode.VIEW_MESSAGE_BY_ID)
        assert asked.ext == {"offset": "200", "topic": "T"}
        for other in (offset_id(b, 200), "0A00000900000001" + "0" * 16):
            assert await admin.message("T", other) is None
        cluster.routes["U"] = {"a": 1}
        assert await admin.message("U", offset_id(a, 200)) is None
        b.answers[RequestCode.VIEW_MESSAGE_BY_ID] = refused(ResponseCode.NO_PERMISSION, "not for you")
        with pytest.raises(RocketletError, match="not for you"):
            await admin.message("T", offset_id(b, 200))


@pytest.mark.parametrize("refusing", [0, 1])
async def test_refusal_of_one_name_server_is_an_error(servers: Servers, refusing: int) -> None:
    """What only one of them has done is not done; the other was asked all the same."""
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    servers.nameservers[refusing].answers[code] = refused(ResponseCode.SYSTEM_ERROR, "not here")
    async with Admin(servers.address) as admin:
        with pytest.raises(RocketletError, match="not here"):
            await admin.forbid_writes("a")
    assert [len(server.asked(code)) for server in servers.nameservers] == [1, 1]


@pytest.mark.parametrize(
    ("code", "next_offset", "asked_from"),
    [
        (ResponseCode.PULL_NOT_FOUND, 3, [0]),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, [0]),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 3, [0, 3]),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 5, [0]),
    ],
    ids=["nothing more", "no way on", "no way on from 3", "the end"],
)
async def test_reading_ends_where_a_broker_does_not_lead_on(
    servers: Servers, cluster: ScriptedCluster, code: int, next_offset: int, asked_from: list[int]
) -> None:
    """The queue has five messages as it says; who asks for the rest again and again would never end."""
    cluster.routes["T"] = {"b": 1}
    broker = cluster.brokers["b"]
    broker.answers[RequestCode.PULL_MESSAGE] = lambda _: pulled(next_offset, code=code)
    async with Admin(servers.address) as admin:
        assert await read(admin) == []
    assert [int(each.ext["queueOffset"]) for each in broker.asked(RequestCode.PULL_MESSAGE)] == asked_from


def offset_id(broker: ScriptedServer, log_offset: int) -> str:
    """Return the offset id of a place in a broker's log."""
    host, _, port = broker.address.rpartition(":")
    return format_offset_id(encode_host(host, int(port)), log_offset)


async def test_topic_that_no_name_server_routes_is_told(servers: Servers, cluster: ScriptedCluster) -> None:
    """After five seconds; brokers have it then."""
    clock, ended = ManualClock(), list[bool]()

    async def create(admin: Admin) -> None:
        with pytest.raises(RequestTimeoutError, match="topic nowhere has no route after 5000 ms"):
            await admin.create_topic("nowhere", cluster="C")
        ended.append(True)

    async with Admin(servers.address, clock=clock) as admin, TaskScope() as tasks:
        tasks.start(create(admin), name="create")
        await cluster.brokers["b"].wait_asked(RequestCode.UPDATE_AND_CREATE_TOPIC)
        begun_at_ms = clock.now_ms()
        while not ended:
            await clock.elapse(25)
        assert clock.now_ms() - begun_at_ms == 5_000
    asked = [each for server in servers.nameservers for each in server.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)]
    assert len(asked) == 200  # twice every 50 ms


@pytest.mark.parametrize(
    ("values", "lag"), [((None, 0, 5), 5), ((None, 2, 5), 3), ((1, 2, 5), 3), ((4, 2, 5), 1), ((5, 0, 5), 0)]
)
def test_lag_leaves_out_what_is_gone(values: tuple[int | None, int, int], lag: int) -> None:
    """Messages below the first offset cannot be consumed any more."""
    assert QueueProgress(FIRST, *values).lag == lag


@pytest.mark.parametrize(
    ("kind", "name", "default", "least"),
    [
        (TopicSettings, "read_queues", 8, 1),
        (TopicSettings, "write_queues", 8, 1),
        (GroupSettings, "retries", 16, 0),
        (GroupSettings, "retry_queues", 1, 0),
    ],
)
def test_number_of_a_topic_or_group_is_checked(kind: type[Any], name: str, default: int, least: int) -> None:
    """The bounds are allowed, and named by the error for what lies behind them."""
    assert getattr(kind(), name) == default
    assert [getattr(kind(**{name: value}), name) for value in (least, 65_535)] == [least, 65_535]
    for value in (least - 1, 65_536):
        with pytest.raises(ConfigError) as raised:
            kind(**{name: value})
        assert (str(raised.value), raised.value.key) == (f"{name} is {value}, allowed are {least} to 65535", name)
