"""The administrator's client and users: against a real broker, by values."""

import pathlib
from collections.abc import AsyncGenerator

import pytest
from real_broker import running_broker

from rocketlet.client import Admin, BrokerUser, Right
from rocketlet.common.errors import ResponseError
from rocketlet.common.settings import NOT_SHOWN
from rocketlet.namesrv.server import NameServer

WORD = "word-of-the-test"


@pytest.fixture
async def admin(nameserver: NameServer, tmp_path: pathlib.Path) -> AsyncGenerator[Admin]:
    """Return an administrator of one broker of ours: the official one of these tests has no place for users."""
    async with running_broker(nameserver, tmp_path / "store"), Admin(nameserver.address) as admin:
        yield admin


@pytest.mark.feature("A10", "A16")
async def test_users_are_made_changed_and_deleted(admin: Admin) -> None:
    """What is not named stays; a refusal has the broker's text."""
    access = admin.access()
    assert await access.users() == []
    await access.create_user("alice", WORD)
    await access.create_user("root", WORD, is_super=True, is_enabled=False)
    with pytest.raises(ResponseError, match="The user is existed"):
        await access.create_user("alice", WORD)
    alice = BrokerUser(name="alice", password=NOT_SHOWN)
    root = BrokerUser(name="root", is_super=True, is_enabled=False, password=NOT_SHOWN)
    assert (await access.users(), await access.users("li")) == ([alice, root], [alice])
    await access.change_user("root", is_enabled=True)
    assert await access.user("root") == BrokerUser(name="root", is_super=True, password=root.password)
    await access.delete_user("root")
    await access.delete_user("root")
    assert await access.user("root") is None
    assert WORD not in repr(BrokerUser(name="alice", password=WORD))


@pytest.mark.feature("A11")
async def test_rights_are_given_and_taken(admin: Admin) -> None:
    """Rights come back as they were given; those of others stay."""
    rights = [
        Right(resource="Topic:orders", actions=("Pub", "Sub"), source_ips=("10.0.0.0/8",)),
        Right(resource="Group:*", actions=("Sub",), is_allowed=False),
        Right(resource="Topic:*", actions=("Get",), is_default=True),
    ]
    [node] = await admin.brokers()
    access = admin.access(brokers=[node.name])
    await access.create_user("alice", WORD)
    await access.create_user("bob", WORD)
    await access.grant("bob", [rights[0]])
    assert await access.rights_of("alice") == []
    await access.grant("alice", rights)
    assert await access.rights_of("alice") == rights
    assert await access.rights("", "Topic:o") == {"alice": [rights[0]], "bob": [rights[0]]}
    await access.revoke("alice", "Topic:*", is_default=True)
    assert await access.rights_of("alice") == rights[:2]
    await access.revoke("alice")
    assert await access.rights() == {"bob": [rights[0]]}
    with pytest.raises(ResponseError, match="The acl is not exist"):
        await access.revoke("alice")
    with pytest.raises(ValueError, match="there is no master of the broker nowhere"):
        await admin.access(brokers=["nowhere"]).users()


@pytest.mark.feature("A10")
async def test_changes_reach_every_broker(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Each broker has users of its own, so that all are told unless some are named."""
    async with (
        running_broker(nameserver, tmp_path / "a"),
        running_broker(nameserver, tmp_path / "b", "broker-b"),
        Admin(nameserver.address) as admin,
    ):
        await admin.access().create_user("alice", WORD)
        first, second = (admin.access(brokers=[name]) for name in ("broker-a", "broker-b"))
        assert [len(await each.users()) for each in (first, second)] == [1, 1]
        await second.delete_user("alice")
        assert [len(await each.users()) for each in (first, second)] == [1, 0]
