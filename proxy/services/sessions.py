"""The lives of clients: HEARTBEAT and NOTIFY_CLIENT_TERMINATION.

Rules

    1. A heartbeat of a client that has sent no settings counts by what it says itself. After a restart of the broker
       some clients send theirs after minutes only. (Upstream answers UNRECOGNIZED_CLIENT_TYPE.)
    2. Nobody is refused to leave: a client that is not known has left before.
"""

from ..messages import v2
from ..messages.enums import ClientType, Code
from ..messages.names import group_fault
from ..messages.statuses import status
from ..rpc.call import Call
from .calling import Caller
from .clients import CONSUMERS, ClientRegistry


class SessionService:
    """Hears that clients live, and that they end."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients

    def heartbeat(self, request: v2.HeartbeatRequest, caller: Caller, _call: Call) -> v2.HeartbeatResponse:
        """Take in a sign of life."""
        client = self._clients.hear(caller)
        if request.client_type in CONSUMERS:
            fault = group_fault(request.group)
            if fault is not None:
                return v2.HeartbeatResponse(status=fault)
            if client.group != request.group.name:
                self._clients.consumes(client, request.group.name, ClientType(request.client_type))
        elif request.client_type != ClientType.PRODUCER:
            remark = f"clients of the type {request.client_type} are not served"
            return v2.HeartbeatResponse(status=status(Code.UNRECOGNIZED_CLIENT_TYPE, remark))
        self._clients.refresh(client)
        return v2.HeartbeatResponse(status=status(Code.OK))

    def terminate(
        self, _request: v2.NotifyClientTerminationRequest, caller: Caller, _call: Call
    ) -> v2.NotifyClientTerminationResponse:
        """Forget a client."""
        self._clients.leave(caller)
        return v2.NotifyClientTerminationResponse(status=status(Code.OK))
