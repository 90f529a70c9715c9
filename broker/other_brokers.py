"""Which other brokers have a topic, and where they serve clients of gRPC: the route of name servers, and their values.

A client of gRPC asks one broker for a route, and gets the queues of all. One that cannot ask a name server tells what
it heard last. Brokers without such a port, and those of which only a slave is left, are left out.

Name servers are asked each time, though ``TopicRoutes`` keeps what they say for half a minute. A topic that nobody has
is made by the broker that is asked for its route: by an answer from before another broker had made it, there would be
two. And clients ask for a route each half a minute themselves: they would see what is new after a minute only.
"""

import logging
from collections.abc import Callable, Sequence

from ..common.codes import ResponseCode
from ..common.errors import RocketletError
from ..remoting.bodies.body import decode_answer
from ..remoting.bodies.route import KVTable, TopicRouteData
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.namesrv import NamespaceHeader, RouteHeader
from ..remoting.transport.event_loop import TaskScope
from .operations import OtherBroker
from .topic.registration import GRPC_NAMESPACE, NameServerLink, Registration

_MASTER = 0
_MOST_KEPT = 1_024
_log = logging.getLogger(__name__)


class OtherBrokers:
    """Finds them for the broker with this name."""

    def __init__(self, registration: Registration, tasks: TaskScope, own_name: str) -> None:
        self._registration = registration
        self._tasks = tasks
        self._own_name = own_name
        self._heard: dict[str, Sequence[OtherBroker]] = {}

    def __repr__(self) -> str:
        return f"<OtherBrokers than {self._own_name}>"

    def find(self, topic: str, tell: Callable[[Sequence[OtherBroker]], object]) -> None:
        """Call with the others that have a topic; at once where there is no name server."""
        links = [link for link in self._registration.links if link.is_registered]
        if links:
            self._tasks.start(self._find(links[0], topic, tell), "ask for other brokers")
        else:
            tell(self._heard.get(topic, ()))

    async def _find(self, link: NameServerLink, topic: str, tell: Callable[[Sequence[OtherBroker]], object]) -> None:
        found: Sequence[OtherBroker] = self._heard.get(topic, ())
        try:
            found = await self._ask(link, topic)
        except RocketletError as error:
            _log.warning(
                "routes tell the brokers heard of before, name server %s did not answer: %s", link.address, error
            )
        else:
            self._keep(topic, found)
        tell(found)

    def _keep(self, topic: str, found: Sequence[OtherBroker]) -> None:
        self._heard.pop(topic, None)
        if found:
            self._heard[topic] = found
            if len(self._heard) > _MOST_KEPT:
                del self._heard[next(iter(self._heard))]

    async def _ask(self, link: NameServerLink, topic: str) -> list[OtherBroker]:
        answer = await link.ask(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic)))
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return []
        route = decode_answer(TopicRouteData, answer.body)
        masters = {data.broker_name for data in route.broker_datas if _MASTER in data.broker_addrs}
        queues = [data for data in route.queue_datas if data.broker_name in masters - {self._own_name}]
        if not queues:
            return []
        asked = Command.request(RequestCode.GET_KVLIST_BY_NAMESPACE, NamespaceHeader(namespace=GRPC_NAMESPACE))
        answer = await link.ask(asked)
        table = decode_answer(KVTable, answer.body).table if answer.code == ResponseCode.SUCCESS and answer.body else {}
        return [
            OtherBroker(
                data.broker_name, table[data.broker_name], data.read_queue_nums, data.write_queue_nums, data.perm
            )
            for data in sorted(queues, key=lambda each: each.broker_name)
            if data.broker_name in table
        ]
