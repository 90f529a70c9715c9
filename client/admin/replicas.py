"""How far the copies of a broker's log have come (907, ``HARuntimeInfo``).

All are asked side by side. A slave says where its log ends and how much came in the last second; how far it is behind
follows from where the master's ends, which is asked at the same time: a slave may seem to be ahead of a busy master.
"""

from functools import partial

from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.replication import HaStatus
from ...remoting.bodies.route import MASTER_ID
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from .admin_calls import AdminCalls
from .admin_values import BrokerNode, ReplicaState


async def ask_replicas(calls: AdminCalls, node: BrokerNode) -> tuple[ReplicaState, ...]:
    """Return what the brokers of a group say, by their ids.

    Raises:
        RemotingError: one does not answer.
    """
    statuses = await calls.ask_each(node.addresses.values(), partial(_ask_status, calls))
    by_id = dict(zip(node.addresses, statuses, strict=True))
    master = by_id.get(MASTER_ID)
    return tuple(_state_of(broker_id, node.addresses[broker_id], status, master) for broker_id, status in by_id.items())


async def _ask_status(calls: AdminCalls, address: str) -> HaStatus:
    answer = await calls.ask_broker(address, Command.request(RequestCode.GET_BROKER_HA_STATUS))
    return decode_answer(HaStatus, answer.body)


def _state_of(broker_id: int, address: str, status: HaStatus, master: HaStatus | None) -> ReplicaState:
    if status.master:
        sent = sum(slave.transferred_byte_in_second for slave in status.ha_connection_info)
        end = status.master_commit_log_max_offset
        return ReplicaState(broker_id, address, end, 0, sent, status.in_sync_slave_nums)
    copied = status.ha_client_runtime_info
    behind = None if master is None else master.master_commit_log_max_offset - copied.max_offset
    return ReplicaState(broker_id, address, copied.max_offset, behind, copied.transferred_byte_in_second)
