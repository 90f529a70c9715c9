"""Who may do what: the order in which entries decide, and the words of refusals."""

import pytest

from rocketlet.broker.security.decision import Need, decide
from rocketlet.broker.security.policies import Acl, Entry, Resource, read_entry
from rocketlet.broker.security.users import User
from rocketlet.common.access import Action, EntryInfo, PolicyType, UserStatus, UserType

WORD = "pw"
ALICE = User(name="alice", password=WORD)
LOCAL = "127.0.0.1"
NO_MATCH, DENIED = "no matched policies.", "the decision is deny."


def resource(text: str) -> Resource:
    """Return the resource of a text."""
    found = Resource.parse(text)
    assert found is not None
    return found


def entry(text: str) -> Entry:
    """Return the entry of a line: resource, actions, decision, addresses."""
    name, actions, decision, *places = text.split()
    return read_entry(
        EntryInfo(
            resource=name, actions=actions.split(","), decision=decision, source_ips=[*places] if places else None
        )
    )


def acl(custom: str = "", default: str = "") -> Acl:
    """Return policies of such lines."""
    found = Acl()
    for kind, lines in ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default)):
        for line in filter(str.strip, lines.split(";")):
            found = found.with_entries([(kind, entry(line))])
    return found


def ask(policies: Acl | None, wanted: str, source_ip: str = LOCAL) -> str | None:
    """Decide about ``Topic:T Pub,Get``; return why it is refused, the last words."""
    name, actions = wanted.split()
    need = Need(resource(name), tuple(Action(word) for word in actions.split(",")))
    remark = decide(ALICE, "alice", policies, need, source_ip)
    start = f"User:alice has no permission to access {name} from {source_ip}, "
    assert remark is None or remark.startswith(start)
    return remark and remark.removeprefix(start)


@pytest.mark.feature("A14")
@pytest.mark.parametrize(
    ("custom", "wanted", "refusal"),
    [
        ("", "Topic:T Pub", NO_MATCH),
        ("Topic:T Pub Allow", "Topic:T Pub", None),
        ("Topic:T Pub Allow", "Topic:T Sub", NO_MATCH),
        ("Topic:T Pub Allow", "Topic:T Sub,Pub", None),
        ("Topic:T All Allow", "Topic:T Delete", None),
        ("Topic:T Pub Allow", "Topic:t Pub", NO_MATCH),
        ("Topic:T Pub Allow", "Group:T Pub", NO_MATCH),
        ("Topic:T Pub Allow", "Topic:T1 Pub", NO_MATCH),
        ("Topic:T* Pub Allow", "Topic:T1 Pub", None),
        ("Topic:T* Pub Allow", "Topic:T Pub", None),
        ("Topic:T* Pub Allow", "Topic:S Pub", NO_MATCH),
        ("Topic:* Pub Allow", "Topic:anything Pub", None),
        ("Topic:* Pub Allow", "Group:anything Pub", NO_MATCH),
        ("* All Allow", "Cluster:c Update", None),
        ("Topic:P* Pub Allow; Topic:Px Pub Deny", "Topic:Px Pub", DENIED),
        ("Topic:Px Pub Deny; Topic:P* Pub Allow", "Topic:Px2 Pub", None),
        ("Topic:P* Pub Deny; Topic:Px Pub Allow", "Topic:Px Pub", None),
        ("Topic:P* Pub Allow; Topic:Plong* Pub Deny", "Topic:PlongA Pub", DENIED),
        ("Topic:P* Pub Deny; Topic:Plong* Pub Allow", "Topic:PlongA Pub", None),
        ("Topic:* Pub Deny; Topic:P* Pub Allow", "Topic:P1 Pub", None),
        ("* All Deny; Topic:* Pub Allow", "Topic:P1 Pub", None),
        ("* All Allow; Topic:* Pub Deny", "Topic:P1 Pub", DENIED),
        ("Topic:Px Sub Deny; Topic:P* Pub Allow", "Topic:Px Pub", None),
        ("Topic:Px Pub Deny 10.0.0.0/8; Topic:P* Pub Allow", "Topic:Px Pub", None),
    ],
)
def test_most_exact_entry_decides(custom: str, wanted: str, refusal: str | None) -> None:
    """Of the entries that fit resource, action and address a name decides before a beginning, a type and everything."""
    assert ask(acl(custom), wanted) == refusal


@pytest.mark.feature("A14")
@pytest.mark.parametrize(
    ("custom", "default", "refusal"),
    [
        ("", "Topic:* Pub Allow", None),
        ("Topic:T Pub Deny", "Topic:T Pub Allow", DENIED),
        ("* All Allow", "Topic:T Pub Deny", None),
        ("Topic:T Sub Deny", "Topic:* Pub Allow", None),
        ("Topic:T Pub Deny 10.0.0.1", "Topic:* Pub Allow", None),
    ],
)
def test_default_entries_count_where_no_custom_one_fits(custom: str, default: str, refusal: str | None) -> None:
    """One custom entry that fits hides all default ones, however exact; one that does not fit hides none."""
    assert ask(acl(custom, default), "Topic:T Pub") == refusal


@pytest.mark.feature("A14")
def test_nobody_without_policies_may_do_anything() -> None:
    """A user who never had policies is refused with the words for policies that do not fit."""
    assert ask(None, "Topic:T Pub") == NO_MATCH


@pytest.mark.feature("A14")
def test_entry_that_denies_decides_before_its_equal() -> None:
    """Of two entries for one resource, which only a hand could write, the one that denies counts, in any order."""
    allows, denies = entry("Topic:T Pub Allow"), entry("Topic:T Pub Deny")
    for entries in ((allows, denies), (denies, allows)):
        policies = acl("Topic:T Pub Allow").policies[0]._replace(entries=entries)
        assert ask(Acl((policies,)), "Topic:T Pub") == DENIED


@pytest.mark.feature("A15")
@pytest.mark.parametrize(
    ("places", "source_ip", "fits"),
    [
        ("127.0.0.0/8", "127.9.9.9", True),
        ("127.0.0.0/8", "128.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.10", False),
        ("10.0.0.1 127.0.0.1", "127.0.0.1", True),
        ("10.1.2.3/8", "10.255.0.1", True),
        ("0.0.0.0/0", "203.0.113.7", True),
        ("10.0.0.1/32", "10.0.0.1", True),
        ("fd00::/8", "fd12:3456::1", True),
        ("fd00::/8", "fe80::1", False),
        ("fd00::/8", "127.0.0.1", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("fe80::1", "fe80::1%eth0", True),
        ("10.0.0.0/8", "::ffff:10.2.3.4", True),
        ("::ffff:10.2.3.4", "10.2.3.4", True),
        ("0.0.0.0/0", "somewhere", False),
    ],
)
def test_source_addresses(places: str, source_ip: str, fits: bool) -> None:
    """An entry with addresses is for those, ranges included, in each way to write them; IPv4 is not IPv6."""
    assert ask(acl(f"Topic:T Pub Allow {places}"), "Topic:T Pub", source_ip) == (None if fits else NO_MATCH)


@pytest.mark.feature("A16")
def test_super_user_needs_no_policy() -> None:
    """Policies do not count for a super user, one that denies neither."""
    root = User(name="root", password=WORD, type=UserType.SUPER)
    need = Need(resource("Topic:T"), (Action.PUB,))
    assert decide(root, "root", acl("Topic:T All Deny"), need, LOCAL) is None


@pytest.mark.feature("A16")
def test_unknown_and_disabled_users_are_refused_whatever_their_policies() -> None:
    """Neither type nor policies help a user who is disabled, nor policies one who is not there."""
    off = User(name="root", password=WORD, type=UserType.SUPER, status=UserStatus.DISABLE)
    need, everything = Need(resource("Topic:T"), (Action.PUB,)), acl("* All Allow")
    assert decide(off, "root", everything, need, LOCAL) == "User:root is disabled."
    assert decide(None, "ghost", everything, need, LOCAL) == "User:ghost not found."
