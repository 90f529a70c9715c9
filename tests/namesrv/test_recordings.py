"""What official brokers, clients and tools sent to the official name server, sent to ours: the answers are the same."""

import json
import pathlib

import pytest
from raw_calls import Caller, open_caller, recorded_calls

from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import NOT_BUILT, RequestCode

ROUTE_CODES = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_BROKER_MEMBER_GROUP,
}
KEY_VALUE_CODES = {
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
}
PERMISSION_CODES = {RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER}


async def repeat(caller: Caller, request: Command) -> Command:
    """Send a recorded request, in its serialisation and version."""
    changes = {"version": request.version, "serialize": request.serialize}
    return await caller.ask(request.code, dict(request.ext), request.body, **changes)


async def put_order(caller: Caller, table: dict[str, str]) -> None:
    """Configure the order of topics."""
    for topic, value in table.items():
        await caller.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": topic, "value": value})


async def register_recorded_broker(caller: Caller, vectors: pathlib.Path, kind: str = "5.4.0") -> None:
    """Send the registrations that the recorded broker sent before the clients came."""
    for request, _, _ in recorded_calls(vectors, f"broker-to-namesrv-{kind}"):
        if request.code == RequestCode.REGISTER_BROKER:
            await repeat(caller, request)


@pytest.mark.feature("N1", "N8", "N11", "N12", "N15")
@pytest.mark.parametrize(
    "scenario", ["broker-to-namesrv", "broker-to-namesrv-5.4.0", "broker-to-namesrv-5.4.0-binaryboth"]
)
async def test_recorded_broker_is_answered_as_by_java(scenario: str, vectors: pathlib.Path, caller: Caller) -> None:
    """Registrations of an official broker are taken or refused as by Java, until it unregisters.

    The order configuration is put before the first answer that has it, as the recording administrator did.
    """
    accepted = 0
    for request, expected, _ in recorded_calls(vectors, scenario):
        if request.code not in (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER):
            continue
        assert expected is not None
        await put_order(caller, json.loads(expected.body or b"{}").get("table", {}))
        answer = await repeat(caller, request)
        assert (answer.code, answer.remark, answer.ext) == (expected.code, expected.remark, expected.ext)
        assert json.loads(answer.body or b"{}") == json.loads(expected.body or b"{}")
        names = json.loads((await caller.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)["topicList"]
        is_there = request.code == RequestCode.REGISTER_BROKER and answer.code == 0
        assert ("TBW102" in names) is is_there
        accepted += is_there
    assert accepted >= 4


@pytest.mark.feature("N1", "N2", "N23")
@pytest.mark.parametrize("scenario", ["route-versions-5.4.0", "route-5.4.0", "route-4.9.8", "route-5.4.0-binaryboth"])
async def test_recorded_routes_are_answered_as_by_java(
    scenario: str, vectors: pathlib.Path, nameserver: NameServer, caller: Caller
) -> None:
    """Routes of the recorded broker, asked again by clients of many versions, are byte for byte those of 5.4.0.

    ``enableActingMaster`` is left out when false, for clients that read Python; cluster info and members follow the
    version rule of routes (remoting.md §5.3, §5.4), so they are compared without quotes around keys.
    """
    async with open_caller(nameserver.address) as broker:
        await register_recorded_broker(broker, vectors, "5.4.0-binaryboth" if "binary" in scenario else "5.4.0")
        compared = 0
        for request, expected, server in recorded_calls(vectors, scenario):
            if server != "namesrv" or expected is None or request.code not in ROUTE_CODES:
                continue
            answer = await repeat(caller, request)
            theirs = expected.body.replace(b',"enableActingMaster":false', b"")
            assert answer.code == expected.code
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                assert (answer.remark, answer.body) == (expected.remark, theirs)
            else:
                assert answer.body.replace(b'{"0":', b"{0:") == theirs
            compared += 1
        assert compared >= 4


@pytest.mark.feature("N14", "N15", "N20")
@pytest.mark.parametrize(("scenario", "topic"), [("admin-write-5.4.0", "Topic540"), ("admin-write-4.9.8", "Topic498")])
async def test_recorded_administration_is_answered_as_by_java(
    scenario: str, topic: str, vectors: pathlib.Path, nameserver: NameServer, caller: Caller
) -> None:
    """Key-value calls have Java's codes, remarks, fields and bodies; permission calls and deletions succeed."""
    await put_order(caller, {topic: "golden-a:2"})
    seen: set[int] = set()
    async with open_caller(nameserver.address) as broker:
        await register_recorded_broker(broker, vectors)
        count = len(json.loads((await caller.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).body)["topicList"])
        for request, expected, server in recorded_calls(vectors, scenario):
            if server != "namesrv" or expected is None or request.code in ROUTE_CODES:
                continue
            answer = await repeat(caller, request)
            assert (answer.code, answer.remark) == (expected.code, expected.remark)
            if request.code in KEY_VALUE_CODES:
                assert (answer.ext, answer.body) == (expected.ext, expected.body)
            elif request.code in PERMISSION_CODES:
                assert answer.ext == dict.fromkeys(expected.ext, str(count))
            seen.add(request.code)
    assert seen == {*KEY_VALUE_CODES, *PERMISSION_CODES, RequestCode.DELETE_TOPIC_IN_NAMESRV}


@pytest.mark.feature("N2", "N22")
async def test_recorded_errors_are_answered_as_by_java(vectors: pathlib.Path, caller: Caller) -> None:
    """Unknown codes and a route request without fields have Java's codes and remarks."""
    compared = 0
    for request, expected, server in recorded_calls(vectors, "errors-5.4.0"):
        if server == "namesrv" and expected is not None:
            answer = await repeat(caller, request)
            assert (answer.code, answer.remark) == (expected.code, expected.remark)
            compared += 1
    assert compared >= 6


@pytest.mark.feature("N22")
async def test_every_code_is_answered_or_refused_by_its_number(caller: Caller) -> None:
    """A request without fields is never left without an answer: it is handled, misses a field, or is answered 3."""
    handled: set[int] = set()
    for code in RequestCode:
        answer = await caller.ask(code)
        if answer.code != 3:
            handled.add(code)
        else:
            assert answer.remark == f" request type {int(code)} not supported" + f" ({code.name})" * (code in NOT_BUILT)
    assert handled == {
        *KEY_VALUE_CODES,
        *ROUTE_CODES,
        *PERMISSION_CODES,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
    }
