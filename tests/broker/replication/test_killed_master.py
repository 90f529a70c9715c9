"""A master that is killed and thrown away, each broker in a process of its own."""

import asyncio
import pathlib
import shutil
from contextlib import ExitStack

import pytest
from interop.replica_group import ReplicaGroup, ask_once
from interop.servers import BROKER_NAME
from polling import ask_until
from raw_calls import open_caller, pull_header

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.replication import HaStatus
from rocketlet.remoting.codec.request_codes import RequestCode

SETTINGS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveReadEnable": "true"}


@pytest.mark.feature("R16", "S20")
def test_new_topics_are_read_at_once_when_the_master_is_thrown_away(tmp_path: pathlib.Path) -> None:
    """Whatever was acknowledged just before, in topics that were made with it, the slave hands out."""
    names = [f"new-{number}" for number in range(20)]
    with ExitStack() as started:
        group = ReplicaGroup(started, tmp_path, **SETTINGS)

        async def send_until_killed() -> None:
            async with open_caller(group.master.address) as caller:
                answers = [await caller.send(name, name.encode(), queue_id=3) for name in names]
                assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
                await asyncio.to_thread(group.master.kill)

        async def read() -> list[bool]:
            async with open_caller(group.slave.address) as caller:
                asked = [caller.ask(RequestCode.PULL_MESSAGE, pull_header(name, queue_id=3)) for name in names]
                return [name.encode() in (await pull).body for name, pull in zip(names, asked, strict=True)]

        ask_until(lambda: _slaves_of(group), lambda slaves: slaves == [0])
        asyncio.run(send_until_killed())
        shutil.rmtree(tmp_path / f"{BROKER_NAME}-0")
        assert asyncio.run(read()) == [True] * len(names)


def _slaves_of(group: ReplicaGroup) -> list[int]:
    """Return how far the slaves of a master have come."""
    status = decode_answer(HaStatus, ask_once(group.master.address, RequestCode.GET_BROKER_HA_STATUS).body)
    return [slave.slave_ack_offset for slave in status.ha_connection_info]
