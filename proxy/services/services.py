"""All methods of the service, with what they share, for one broker."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, Final

from ...broker.operations import BrokerOperations
from ...common.ids import Address
from ...remoting.transport.event_loop import TaskScope, repeat
from ..messages import v2
from ..messages.enums import Code
from ..messages.statuses import status
from ..rpc.call import Call, Methods, StreamMethod, UnaryMethod
from .acknowledging import AckService
from .authorization import CallGuard
from .calling import SERVICE, Caller, admit_anybody, unary
from .clients import LOOK_MS, ClientRegistry
from .keepers import ClientKeepers
from .questions import ClientQuestions
from .receiving import ReceiveService
from .routes import RouteService
from .sending import SendService
from .sessions import SessionService
from .telemetry import TelemetryService
from .transactions import TransactionIds, TransactionService

Served = tuple[Any, Any, Callable[[Any, Caller, Call], Any]]
"""A request, its answer, and what serves it."""
NO_LITE: Final = "lite topics are not built: subscribe to a topic, and filter by tags or SQL92"


class Services:
    """The methods; ``own_address`` tells clients where the port is that do not say how they have reached it."""

    def __init__(self, operations: BrokerOperations, own_address: Address) -> None:
        self._operations = operations
        ids = TransactionIds(operations.store)
        self._transactions = TransactionService(operations, ids)
        self._questions = ClientQuestions(operations.clock)
        self.clients = ClientRegistry(operations, self._transactions, self._questions)
        self.clients.on_gone(self._questions.gone)
        self._routes = RouteService(operations, own_address)
        self._sessions = SessionService(self.clients)
        self._sends = SendService(operations, self.clients, ids)
        self.methods: Methods = {SERVICE + name: method for name, method in self._named_methods().items()}

    def _named_methods(self) -> Methods:
        """Return the methods by their names; where nobody is asked who calls, some go shorter ways."""
        access, clock, clients = self._operations.access, self._operations.clock, self.clients
        admit = admit_anybody if access is None else CallGuard(access, clients, clock).admit
        methods: dict[str, UnaryMethod | StreamMethod] = {
            name: unary(*how, admit) for name, how in self._served().items()
        }
        received = unary(v2.ReceiveMessageRequest, v2.ReceiveMessageResponse, self._receive, admit)
        methods["ReceiveMessage"] = received._replace(is_long_poll=True)
        if access is None:
            methods["SendMessage"] = UnaryMethod(self._sends.serve)
            methods["AckMessage"] = UnaryMethod(self._acknowledge_data)
        methods["Telemetry"] = StreamMethod(TelemetryService(self._operations, clients, self._questions, admit).open)
        return methods

    def _served(self) -> dict[str, Served]:
        routes, sessions, sends = self._routes, self._sessions, self._sends
        return {
            "QueryRoute": (v2.QueryRouteRequest, v2.QueryRouteResponse, routes.query_route),
            "QueryAssignment": (v2.QueryAssignmentRequest, v2.QueryAssignmentResponse, routes.query_assignment),
            "Heartbeat": (v2.HeartbeatRequest, v2.HeartbeatResponse, sessions.heartbeat),
            "NotifyClientTermination": (
                v2.NotifyClientTerminationRequest,
                v2.NotifyClientTerminationResponse,
                sessions.terminate,
            ),
            "SendMessage": (v2.SendMessageRequest, v2.SendMessageResponse, sends.send),
            "RecallMessage": (v2.RecallMessageRequest, v2.RecallMessageResponse, sends.recall),
            "EndTransaction": (v2.EndTransactionRequest, v2.EndTransactionResponse, self._transactions.end),
            "AckMessage": (v2.AckMessageRequest, v2.AckMessageResponse, self._acknowledge),
            "ChangeInvisibleDuration": (
                v2.ChangeInvisibleDurationRequest,
                v2.ChangeInvisibleDurationResponse,
                self._change,
            ),
            "ForwardMessageToDeadLetterQueue": (
                v2.ForwardMessageToDeadLetterQueueRequest,
                v2.ForwardMessageToDeadLetterQueueResponse,
                self._forward,
            ),
            "SyncLiteSubscription": (v2.SyncLiteSubscriptionRequest, v2.SyncLiteSubscriptionResponse, _refuse_lite),
        }

    def __repr__(self) -> str:
        return f"<Services for {self.clients!r}>"

    @cached_property
    def _receives(self) -> ReceiveService:
        """Who hands messages out; producers alone need nothing of POP."""
        operations, clients = self._operations, self.clients
        keepers = ClientKeepers(clients.is_alive, operations.clock.now_ms, operations.pop().release)
        clients.on_gone(keepers.gone)
        return ReceiveService(operations, keepers)

    @cached_property
    def _acks(self) -> AckService:
        return AckService(self._operations, self.clients.hear)

    def _receive(self, request: v2.ReceiveMessageRequest, caller: Caller, call: Call) -> None:
        self.clients.hear(caller)
        self._receives.receive(request, caller.client_id, call)

    def _acknowledge(self, request: v2.AckMessageRequest, caller: Caller, call: Call) -> None:
        self._acks.acknowledge(request, caller, call)

    def _acknowledge_data(self, data: bytes, call: Call) -> None:
        self._acks.serve(data, call)

    def _change(self, request: v2.ChangeInvisibleDurationRequest, caller: Caller, call: Call) -> None:
        self.clients.hear(caller)
        self._acks.change(request, call)

    def _forward(self, request: v2.ForwardMessageToDeadLetterQueueRequest, caller: Caller, call: Call) -> None:
        self.clients.hear(caller)
        self._acks.forward(request, call)


@asynccontextmanager
async def serve_methods(operations: BrokerOperations, own_address: Address) -> AsyncGenerator[Methods]:
    """Return the methods of a broker; clients that are silent are forgotten inside."""
    services = Services(operations, own_address)
    async with TaskScope() as tasks:
        expire = services.clients.expire
        tasks.start(repeat(expire, operations.clock, first_ms=LOOK_MS), "forget silent clients")
        try:
            yield services.methods
        finally:
            services.clients.forget_all()


def _refuse_lite(
    _request: v2.SyncLiteSubscriptionRequest, _caller: Caller, _call: Call
) -> v2.SyncLiteSubscriptionResponse:
    return v2.SyncLiteSubscriptionResponse(status=status(Code.NOT_IMPLEMENTED, NO_LITE))
