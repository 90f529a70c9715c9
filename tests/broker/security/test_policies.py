"""Policies as administrators write, change and read them."""

from collections.abc import Sequence

import pytest

from rocketlet.broker.security.policies import AclDeletion, AclTable, Resource
from rocketlet.broker.security.users import User, UserTable
from rocketlet.broker.settings.refusal import Refusal
from rocketlet.common.access import MAX_LISTED, AclInfo, EntryInfo, PolicyInfo

WORD = "pw"
USERS = UserTable(User(name=name, password=WORD) for name in ("alice", "bob"))
ALICE = "User:alice"


def info(*entries: EntryInfo, kind: str | None = None, subject: str | None = None) -> AclInfo:
    """Return what a request asks for."""
    return AclInfo(policies=[PolicyInfo(entries=list(entries), policy_type=kind)], subject=subject)


def grant(
    resource: str | None = "Topic:T",
    actions: Sequence[str] = ("Pub",),
    decision: str | None = "Allow",
    places: Sequence[str] | None = None,
) -> EntryInfo:
    """Return an entry."""
    return EntryInfo(
        resource=resource, actions=list(actions), decision=decision, source_ips=None if places is None else [*places]
    )


def table(*changes: tuple[str, AclInfo]) -> AclTable:
    """Return the table after some changes."""
    found = AclTable()
    for subject, change in changes:
        merged = found.merge(subject, change, USERS)
        assert isinstance(merged, AclTable), merged
        found = merged
    return found


def lines(found: AclTable, subject: str = ALICE) -> list[str]:
    """Return the policies of a subject as lines."""
    told = [each for each in found.list() if each.subject == subject]
    return [
        " ".join([policy.policy_type or "", entry.resource or "", ",".join(entry.actions or ()), entry.decision or ""])
        for each in told
        for policy in each.policies or ()
        for entry in policy.entries or ()
    ]


@pytest.mark.feature("A11")
def test_entries_are_merged_by_resource() -> None:
    """A new entry takes the place of the one for the same resource and type; all others stay where they are."""
    found = table(
        (ALICE, info(grant("Topic:T", ["Pub"]), grant("Group:g*", ["Sub"]))),
        (ALICE, info(grant("Topic:T", ["Sub", "get"], "deny"))),
        (ALICE, info(grant("Topic:T", ["Pub"]), kind="default")),
        (ALICE, info(grant("Topic:T*", ["Pub"]), kind="Nonsense")),
    )
    assert lines(found) == [
        "Custom Topic:T Sub,Get Deny",
        "Custom Group:g* Sub Allow",
        "Custom Topic:T* Pub Allow",
        "Default Topic:T Pub Allow",
    ]


@pytest.mark.feature("A11")
def test_source_addresses_are_replaced_with_the_entry() -> None:
    """An entry written anew without addresses is for all of them."""
    found = table((ALICE, info(grant(places=["10.0.0.1"]))), (ALICE, info(grant())))
    [told] = found.list()
    assert told.policies is not None
    assert told.policies[0].entries is not None
    assert told.policies[0].entries[0].source_ips is None


@pytest.mark.feature("A11")
@pytest.mark.parametrize(
    ("asked", "code", "remark"),
    [
        (info(grant("Foo:T")), 16, "The resource is null."),
        (info(grant(None)), 16, "The resource is null."),
        (info(grant("Any:T")), 16, "The resource is null."),
        (info(grant(actions=["Fly"])), 16, "The actions is empty."),
        (info(grant(actions=[])), 16, "The actions is empty."),
        (info(grant(actions=["Pub", "any"])), 16, "The actions can not be Any."),
        (info(grant(places=["300.1.1.1"])), 16, "The source ip is invalid."),
        (info(grant(places=["10.0.0.0/33"])), 16, "The source ip is invalid."),
        (info(grant(places=["10.0.0.0/255.0.0.0"])), 16, "The source ip is invalid."),
        (info(grant(places=["localhost"])), 16, "The source ip is invalid."),
        (info(grant(places=[" "])), 16, "The source ip is empty."),
        (info(EntryInfo(resource="*", actions=["Pub"], source_ips=[None])), 16, "The source ip is empty."),
        (info(grant(decision="Maybe")), 16, "The decision is null or illegal."),
        (info(grant(decision=None)), 16, "The decision is null or illegal."),
        (info(), 16, "The policies is empty."),
        (info(grant(), subject="User:ghost"), 16, "The subject of User:ghost is not exist."),
        (
            AclInfo(),
            1,
            "The body of acl is null",
        ),
        (None, 1, "The body of acl is null"),
    ],
)
def test_policies_that_nobody_can_have_are_refused(asked: AclInfo | None, code: int, remark: str) -> None:
    """What is refused is refused in upstream's words, and changes nothing."""
    before = table((ALICE, info(grant("Topic:T", ["Sub"]))))
    assert before.merge(ALICE, asked, USERS) == Refusal(code, remark)
    assert lines(before) == ["Custom Topic:T Sub Allow"]


@pytest.mark.feature("A11")
@pytest.mark.parametrize("subject", ["", "alice", "User", "Role:alice", None])
def test_subject_that_is_none_is_refused(subject: str | None) -> None:
    """Only users have policies."""
    assert AclTable().merge(subject, info(grant()), USERS) == Refusal(
        1, "An system error occurred, please try again later."
    )
    assert AclTable().get(subject, USERS) == Refusal(16, "The subject is null.")
    assert AclTable().delete(AclDeletion(subject), USERS) == Refusal(16, "The subject is null.")


@pytest.mark.feature("A11")
def test_body_names_the_subject_before_the_header() -> None:
    """As upstream: the header's subject counts where the body has none."""
    found = table((ALICE, info(grant(), subject="user:bob")))
    assert (lines(found), lines(found, "User:bob")) == ([], ["Custom Topic:T Pub Allow"])


@pytest.mark.feature("A11")
def test_deleting() -> None:
    """An entry goes alone, one that is not there costs nothing, and without a resource all goes, of both types."""
    full = table(
        (ALICE, info(grant("Topic:T"), grant("Topic:S"))),
        (ALICE, info(grant("Topic:T"), kind="Default")),
        ("User:bob", info(grant("Topic:B"))),
    )

    def after(*deletion: str | None) -> list[str]:
        found = full.delete(AclDeletion(*deletion), USERS)
        assert isinstance(found, AclTable)
        assert lines(found, "User:bob") == ["Custom Topic:B Pub Allow"]
        return lines(found)

    custom = ["Custom Topic:T Pub Allow", "Custom Topic:S Pub Allow"]
    default = ["Default Topic:T Pub Allow"]
    assert after(ALICE, None, "Topic:T") == custom[1:] + default
    assert after(ALICE, "Default", "Topic:T") == custom
    assert after(ALICE, "Custom", "Topic:*") == custom + default
    assert after(ALICE, "Custom", "") == []
    assert after(ALICE) == []


@pytest.mark.feature("A11")
def test_subject_goes_with_its_last_entry() -> None:
    """Nothing is left to be deleted a second time."""
    found = table((ALICE, info(grant("Topic:T")))).delete(AclDeletion(ALICE, None, "Topic:T"), USERS)
    assert isinstance(found, AclTable)
    assert found.delete(AclDeletion(ALICE), USERS) == Refusal(16, "The acl is not exist.")
    assert found.delete(AclDeletion("User:ghost"), USERS) == Refusal(16, "The subject is not exist.")


@pytest.mark.feature("A11")
def test_resource_that_is_none_deletes_nothing() -> None:
    """A mistyped resource does not stand for all of them, as it does upstream."""
    full = table((ALICE, info(grant("Topic:T"))))
    assert full.delete(AclDeletion(ALICE, None, "Topik:T"), USERS) == Refusal(16, "The resource is null.")


@pytest.mark.feature("A11")
def test_filters() -> None:
    """Parts of subjects and resources choose; subjects of whom nothing is left are not told."""
    full = table((ALICE, info(grant("Topic:T1"), grant("Group:g"))), ("User:bob", info(grant("Topic:T2"))))

    def told(*parts: str) -> list[tuple[str | None, int]]:
        return [(each.subject, len((each.policies or [])[0].entries or ())) for each in full.list(*parts)]

    assert told() == told(" ", "") == [(ALICE, 2), ("User:bob", 1)]
    assert told("bob") == [("User:bob", 1)]
    assert told("", "Topic:") == [(ALICE, 1), ("User:bob", 1)]
    assert told("", "T2") == [("User:bob", 1)]
    assert told("alice", "T2") == []


@pytest.mark.parametrize("text", ["Topic:T", "Topic:T*", "Topic:*", "*", "Cluster:c", "Namespace:n", "Group:a:b"])
def test_resources_are_written_as_they_are_read(text: str) -> None:
    """What is told of a resource names the same again."""
    assert str(Resource.parse(text)) == text


def test_resource_types_are_read_in_any_case() -> None:
    """And written as upstream writes them."""
    assert str(Resource.parse("topic:T*")) == "Topic:T*"


def test_file_holds_what_the_table_does() -> None:
    """Policies read back are the same ones."""
    full = table(
        (ALICE, info(grant("Topic:T", ["Pub", "Sub"], places=["10.0.0.0/8", "::1"]), grant("*", ["All"], "Deny"))),
        (ALICE, info(grant("Group:*"), kind="Default")),
    )
    again = AclTable.of(full.content())
    assert again.list() == full.list()
    assert again.find("alice") == full.find("alice")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"alice": info(grant())}, "subject 'alice' is not User:<name>"),
        ({ALICE: info(grant("Foo:T"))}, "User:alice: The resource is null."),
        ({ALICE: AclInfo()}, "User:alice: The policies is empty."),
    ],
)
def test_file_that_nobody_wrote_so_is_refused(content: dict[str, AclInfo], words: str) -> None:
    """An entry that cannot be used might have denied something: it is never passed over."""
    with pytest.raises(ValueError, match=words):
        AclTable.of(content)


def test_entries_of_a_subject_are_bounded() -> None:
    """One request more than the limit is refused, and what was there stays."""
    entries = [grant(f"Topic:{number}") for number in range(MAX_LISTED)]
    full = table((ALICE, info(*entries)))
    refusal = full.merge(ALICE, info(grant("Topic:more")), USERS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, len(lines(full))) == (16, MAX_LISTED)
    assert isinstance(full.merge(ALICE, info(grant("Topic:7", ["Sub"])), USERS), AclTable)
