"""What a requester sees of a route: an acting master, or the brokers of its zone (behaviour.md A.8).

Pure: a view is a new route, the table stays as it is.
"""

from ..common.names import PERM_WRITE
from ..remoting.bodies.route import MASTER_ID
from .routes import BrokerGroup, Route

MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"  # the topics by which a group's members find each other


def with_acting_masters(route: Route) -> Route:
    """Show the first slave of a group without a master as its master, if the group agreed and cannot be written to."""
    return route._replace(groups=[_with_acting_master(group, route) for group in route.groups])


def within_zone(route: Route, zone: str) -> Route:
    """Leave out the groups of other zones, unless they lack a master: their slaves may be read from anywhere."""
    groups = [group for group in route.groups if MASTER_ID not in group.addresses or _is_in(group, zone)]
    names = {group.broker_name for group in route.groups} - {group.broker_name for group in groups}
    return Route({name: shape for name, shape in route.queues.items() if name not in names}, groups)


def _with_acting_master(group: BrokerGroup, route: Route) -> BrokerGroup:
    if not group.acts_as_master or MASTER_ID in group.addresses:
        return group
    if route.queues[group.broker_name].perm & PERM_WRITE:
        return group
    first, *others = sorted(group.addresses)
    addresses = {MASTER_ID: group.addresses[first], **{broker_id: group.addresses[broker_id] for broker_id in others}}
    return BrokerGroup(group.cluster, group.broker_name, addresses, group.zone, group.acts_as_master)


def _is_in(group: BrokerGroup, zone: str) -> bool:
    return group.zone is not None and group.zone.lower() == zone.lower()
