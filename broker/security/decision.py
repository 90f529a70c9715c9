"""The decision whether a user may do what a request needs (``UserAuthorizationHandler``, ``AclAuthorizationHandler``).

Rules (spec security.md §8), for one resource and the actions of which any one suffices:

    1. A user who is unknown or disabled is refused; a super user is granted everything.
    2. The custom entries that fit the resource, one of the actions and the source address count; where there is none,
       the default entries that fit.
    3. Of these the most exact decides: a name before a beginning, a longer beginning before a shorter one, then a type,
       then everything; of equal ones one that denies.
    4. Without such an entry it is refused.

Nothing here knows requests, files or time: what is decided may be kept until a table changes.
"""

from typing import NamedTuple, final

from ...common.access import Action, Decision, PolicyType
from .policies import Acl, Entry, Resource
from .users import User


@final
class Need(NamedTuple):
    """What a request needs: one of the actions on a resource."""

    resource: Resource
    actions: tuple[Action, ...]


def decide(user: User | None, user_name: str, acl: Acl | None, need: Need, source_ip: str) -> str | None:
    """Return why a request is refused, in upstream's words; ``None``: it is granted."""
    if user is None:
        return f"User:{user_name} not found."
    if user.is_disabled:
        return f"User:{user_name} is disabled."
    if user.is_super:
        return None
    entry = None if acl is None else find_entry(acl, need, source_ip)
    if entry is not None and entry.decision is Decision.ALLOW:
        return None
    reason = "no matched policies" if entry is None else "the decision is deny"
    return f"User:{user_name} has no permission to access {need.resource} from {source_ip}, {reason}."


def find_entry(acl: Acl, need: Need, source_ip: str) -> Entry | None:
    """Return the entry that decides."""
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        found = [
            entry
            for entry in acl.entries(kind)
            if entry.resource.covers(need.resource)
            and entry.fits_actions(need.actions)
            and entry.fits_source(source_ip)
        ]
        if found:
            return max(found, key=_rank)
    return None


def _rank(entry: Entry) -> tuple[tuple[int, int], bool]:
    return entry.resource.precision, entry.decision is Decision.DENY
