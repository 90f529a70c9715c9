"""Who asks and whether they may, whatever door they come to."""

import pytest

from rocketlet.broker.security.access import MOST_GRANTED, MOST_NAMES, NO_NAME, NOBODY, Access, AccessRefusedError
from rocketlet.broker.security.failed_tries import MOST_TRIES
from rocketlet.broker.security.needs import topic_need
from rocketlet.broker.security.policies import AclTable
from rocketlet.broker.security.tables import Security, SecurityTables
from rocketlet.broker.security.users import UserTable
from rocketlet.broker.settings.refusal import Refusal
from rocketlet.broker.settings.security import SecurityConfig
from rocketlet.common.access import Action, UserInfo
from rocketlet.common.ids import Address
from rocketlet.testing.manual_clock import ManualClock

HERE: Address = ("10.0.0.1", 40_001)
NEIGHBOUR: Address = ("10.0.0.1", 40_002)


def users_of(*names: str, kind: str = "Super") -> UserTable:
    """Return users who may do everything, or nothing."""
    table = UserTable()
    for name in names:
        made = table.create(name, UserInfo(password=f"{name}-secret", user_type=kind), by_super=True)
        assert not isinstance(made, Refusal)
        table = made
    return table


@pytest.fixture
def security() -> Security:
    """Return three users, one of whom may do nothing."""
    return Security(users_of("ann", "bob").put(*filter(None, [users_of("eve", kind="Normal").find("eve")])), AclTable())


@pytest.fixture
def access(security: Security) -> Access:
    """Return what knows them."""
    return Access(SecurityConfig(authenticates=True, authorizes=True), security, ManualClock())


def told(access: Access, name: str | None, address: Address = HERE, *, is_right: bool = True) -> str | None:
    """Return why somebody is refused who signs rightly, or not."""
    try:
        assert access.identify(name, lambda _: is_right, address) == name
    except AccessRefusedError as refused:
        return refused.remark
    return None


def test_tries_count_for_the_address_and_not_for_who_is_known(access: Access) -> None:
    """Not as another user, and not from another port."""
    assert told(access, "ann") is None
    for _ in range(MOST_TRIES):
        assert told(access, "bob", NEIGHBOUR, is_right=False) == "check signature failed."
    assert told(access, "ann") is None
    for name, address in (("ann", NEIGHBOUR), ("bob", HERE), ("nobody", HERE)):
        with pytest.raises(AccessRefusedError, match="too many wrong signatures") as refused:
            access.identify(name, lambda _: True, address)
        assert refused.value.is_shut_out
    access.leave(HERE)
    assert str(told(access, "ann")).startswith("too many")
    assert told(access, "ann", ("10.0.0.2", 1)) is None


def test_names_without_a_user_and_no_name(access: Access) -> None:
    """The former count as tries, the latter does not: nothing was tried."""
    for _ in range(MOST_TRIES):
        assert told(access, None) == NO_NAME
        assert told(access, "") == NO_NAME
    for _ in range(MOST_TRIES):
        assert told(access, "ghost") == "User:ghost is not found."
    assert str(told(access, "ann")).startswith("too many")


def test_open_to_anybody(access: Access) -> None:
    """Nobody is refused; who says a name wrongly is nobody, and has had a try."""
    for name, is_right, user in (("ann", True, "ann"), ("ann", False, None), (None, True, None), ("ghost", True, None)):
        assert access.identify(name, lambda _, is_right=is_right: is_right, HERE, is_open=True) == user
    for _ in range(MOST_TRIES):
        access.identify("ann", lambda _: False, HERE, is_open=True)
    assert str(told(access, "bob")).startswith("too many")


def test_what_is_remembered_is_bounded(access: Access) -> None:
    """Names of a connection, and grants."""
    needs = [topic_need(f"T{number}", Action.PUB) for number in range(MOST_GRANTED + 1)]
    access.authorize("ann", needs, HERE[0])
    assert repr(access).endswith(", 1 grants remembered>")
    names = [f"user{number}" for number in range(MOST_NAMES + 1)]
    access = Access(SecurityConfig(), Security(users_of(*names), AclTable()), ManualClock())
    for name in names:
        assert told(access, name) is None
    assert access.known == {HERE: set(names[:-1])}


def test_changes_forget_everything(access: Access, security: Security) -> None:
    """Keys, grants, and who was known; not the connections themselves, whose end will be told."""
    assert told(access, "ann") is None
    access.authorize("ann", [topic_need("T", Action.PUB)], HERE[0])
    keys, granted, known = access.keys, access.granted, access.known
    assert (set(keys), len(granted), known) == ({"ann"}, 1, {HERE: {"ann"}})
    security.put(SecurityTables(users_of("bob"), AclTable()))
    assert (keys, granted, known) == ({}, set(), {HERE: set()})
    assert told(access, "ann") == "User:ann is not found."
    with pytest.raises(AccessRefusedError, match="User:ann not found"):
        access.authorize("ann", [topic_need("T", Action.PUB)], HERE[0])


def test_rights(access: Access) -> None:
    """Nobody may what needs nothing; what is refused is not remembered; lists ask without remembering."""
    need = topic_need("T", Action.PUB)
    access.authorize(None, [], HERE[0])
    with pytest.raises(AccessRefusedError, match=NOBODY):
        access.authorize(None, [need], HERE[0])
    with pytest.raises(AccessRefusedError, match="User:eve has no permission to access Topic:T from"):
        access.authorize("eve", [need], HERE[0])
    assert (access.may("eve", need, HERE[0]), access.may("ann", need, HERE[0])) == (False, True)
    assert not access.granted
