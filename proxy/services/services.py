"""All methods of the service, with what they share, for one broker."""

from collections.abc import Callable

from ...broker.operations import BrokerOperations
from ...remoting.transport.event_loop import TaskScope, repeat
from ..messages import v2
from ..messages.enums import Code
from ..messages.statuses import status
from ..rpc.call import Call, Methods, StreamMethod
from .calling import SERVICE, Caller, unary
from .clients import LOOK_MS, ClientRegistry
from .routes import OwnPlace, RouteService
from .sending import SendService
from .sessions import SessionService
from .telemetry import TelemetryService
from .transactions import TransactionIds, TransactionService

NO_LITE = "lite topics are not built: subscribe to a topic, and filter by tags or SQL92"


class Services:
    """The methods; ``own_endpoints`` tells where the port can be reached from outside."""

    def __init__(self, operations: BrokerOperations, own_endpoints: Callable[[], tuple[str, int]]) -> None:
        self._operations = operations
        ids = TransactionIds(operations.store)
        transactions = TransactionService(operations, ids)
        self.clients = clients = ClientRegistry(operations.guests, operations.clock, transactions.ask)
        routes = RouteService(operations, OwnPlace(operations.settings.config.broker_name, own_endpoints))
        sessions, sends = SessionService(clients), SendService(operations, clients, ids)
        self.methods: Methods = {
            SERVICE + "QueryRoute": unary(v2.QueryRouteRequest, v2.QueryRouteResponse, routes.query_route),
            SERVICE + "QueryAssignment": unary(
                v2.QueryAssignmentRequest, v2.QueryAssignmentResponse, routes.query_assignment
            ),
            SERVICE + "Heartbeat": unary(v2.HeartbeatRequest, v2.HeartbeatResponse, sessions.heartbeat),
            SERVICE + "NotifyClientTermination": unary(
                v2.NotifyClientTerminationRequest, v2.NotifyClientTerminationResponse, sessions.terminate
            ),
            SERVICE + "SendMessage": unary(v2.SendMessageRequest, v2.SendMessageResponse, sends.send),
            SERVICE + "RecallMessage": unary(v2.RecallMessageRequest, v2.RecallMessageResponse, sends.recall),
            SERVICE + "EndTransaction": unary(v2.EndTransactionRequest, v2.EndTransactionResponse, transactions.end),
            SERVICE + "SyncLiteSubscription": unary(
                v2.SyncLiteSubscriptionRequest, v2.SyncLiteSubscriptionResponse, _refuse_lite
            ),
            SERVICE + "Telemetry": StreamMethod(TelemetryService(operations, clients).open),
        }

    def begin(self, tasks: TaskScope) -> None:
        """Do from now on what is due."""
        tasks.start(repeat(self.clients.expire, self._operations.clock, first_ms=LOOK_MS), "forget silent clients")

    def stop(self) -> None:
        """End what would stay open."""
        self.clients.end_streams()


def _refuse_lite(
    _request: v2.SyncLiteSubscriptionRequest, _caller: Caller, _call: Call
) -> v2.SyncLiteSubscriptionResponse:
    return v2.SyncLiteSubscriptionResponse(status=status(Code.NOT_IMPLEMENTED, NO_LITE))
