"""Users and policies of a running broker: what is told, what is kept, and who may make super users."""

import asyncio
import json
import logging
import pathlib
import shutil
import stat

import pytest
from raw_calls import Caller, open_caller
from stores import LimitedFiles

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.errors import ConfigError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

SECRET = "veryS3cret"  # noqa: S105 # the test's own
INIT_USER = json.dumps({"username": "admin", "password": SECRET})


async def create(caller: Caller, name: str, by: str = "", **info: str) -> Command:
    """Ask for a user."""
    fields = {"username": name} | ({"AccessKey": by} if by else {})
    body = json.dumps({"password": SECRET, **info}).encode()
    return await caller.ask(Code.AUTH_CREATE_USER, fields, body)


async def grant(caller: Caller, name: str) -> Command:
    """Let a user send to a topic."""
    entry = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}
    body = json.dumps({"policies": [{"entries": [entry]}]}).encode()
    return await caller.ask(Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)


@pytest.mark.feature("A25")
async def test_passwords_are_told_nowhere(
    settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither answers about users and settings nor the log hold one, unless a setting says so."""
    caplog.set_level(logging.DEBUG)
    config = BrokerConfig.from_java({**settings, "initAuthenticationUser": INIT_USER})
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        assert (await create(caller, "alice")).code == 0
        assert (await caller.ask(Code.AUTH_CREATE_USER, {"username": "b"}, f'{{"password":["{SECRET}"'.encode())).code
        told = [
            await caller.ask(Code.AUTH_GET_USER, {"username": "alice"}),
            await caller.ask(Code.AUTH_LIST_USER, {}),
            await caller.ask(Code.GET_BROKER_CONFIG, {}),
            await caller.ask(Code.GET_BROKER_RUNTIME_INFO, {}),
        ]
        assert json.loads(told[0].body)["password"] == "*" * 6
        assert [user["username"] for user in json.loads(told[1].body)] == ["admin", "alice"]
        assert not [answer for answer in told if SECRET in f"{answer.body!r} {answer.remark} {answer.ext}"]
        assert SECRET not in repr(broker.config)
    assert SECRET not in caplog.text


@pytest.mark.feature("A25")
async def test_masked_user_cannot_be_copied_by_mistake(caller: Caller) -> None:
    """What a broker shows in place of a password makes no user elsewhere, and changes none."""
    refused = await create(caller, "copied", password="******")  # noqa: S106 # the mask
    assert (refused.code, "brokers show in place of one" in (refused.remark or "")) == (16, True)
    await create(caller, "alice")
    masked = b'{"password":"******","userStatus":"disable"}'
    assert (await caller.ask(Code.AUTH_UPDATE_USER, {"username": "alice"}, masked)).code == 0


@pytest.mark.feature("A19")
async def test_what_is_answered_outlives_a_kill(
    settings: dict[str, str], broker: Broker, caller: Caller, clock: ManualClock, tmp_path: pathlib.Path
) -> None:
    """The files as they are when the answer comes are enough for a broker that starts on them; only their owner reads.

    Nothing is left for the end of the first broker to write.
    """
    assert (await create(caller, "alice")).code == 0
    assert (await grant(caller, "alice")).code == 0
    root = pathlib.Path(settings["storePathRootDir"])
    files = [root / "config" / name for name in ("users.json", "acls.json")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    await asyncio.to_thread(shutil.copytree, root, tmp_path / "killed")
    config = BrokerConfig.from_java(
        {**settings, "storePathRootDir": str(tmp_path / "killed"), "showUserPasswords": "true"}
    )
    async with Broker(config, clock) as again, open_caller(again.address) as other:
        user = json.loads((await other.ask(Code.AUTH_GET_USER, {"username": "alice"})).body)
        assert (user["username"], user["password"]) == ("alice", SECRET)
        acl = await other.ask(Code.AUTH_GET_ACL, {"subject": "User:alice"})
        assert json.loads(acl.body)["policies"][0]["entries"][0]["resource"] == "Topic:T"
        assert (await other.ask(Code.AUTH_DELETE_USER, {"username": "alice"})).code == 0
    async with Broker(config, clock) as again, open_caller(again.address) as other:
        assert [(await other.ask(code, {})).body for code in (Code.AUTH_LIST_USER, Code.AUTH_LIST_ACL)] == [b"", b""]


@pytest.mark.feature("A19")
async def test_full_disk_refuses_the_change(settings: dict[str, str], clock: ManualClock) -> None:
    """Nobody is told that a user is there who would be gone after a restart; the broker goes on."""
    disk = LimitedFiles()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        assert (await create(caller, "alice")).code == 0
        disk.room = 0
        refused = await create(caller, "bob")
        disk.room = None
        assert (refused.code, "No space left" in (refused.remark or "")) == (1, True)
        users = json.loads((await caller.ask(Code.AUTH_LIST_USER, {})).body)
        assert [user["username"] for user in users] == ["alice"]
        assert (await create(caller, "bob")).code == 0


@pytest.mark.feature("A16")
async def test_super_users_are_made_by_super_users(caller: Caller) -> None:
    """Who says a name that is none of a super user may not; who says none may, where nobody is asked."""
    assert (await create(caller, "root", userType="Super")).code == 0
    assert (await create(caller, "alice", "root")).code == 0
    for by in ("alice", "ghost"):
        refused = await create(caller, "second", by, userType="Super")
        assert (refused.code, refused.remark) == (1, "The super user can only be create by super user")
    assert (await create(caller, "second", "root", userType="Super")).code == 0


@pytest.mark.feature("A16", "A17")
async def test_white_listed_request_comes_from_nobody(settings: dict[str, str], clock: ManualClock) -> None:
    """Whose name is not checked may not make a super user by saying the name of one, nor by saying none."""
    guarded = {**settings, "authenticationEnabled": "true", "authenticationWhitelist": "3001,3003"}
    config = BrokerConfig.from_java({**guarded, "initAuthenticationUser": INIT_USER})
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        for by in ("admin", ""):
            assert (await create(caller, "second", by, userType="Super")).code == 1
            fields = {"username": "admin"} | ({"AccessKey": by} if by else {})
            assert (await caller.ask(Code.AUTH_DELETE_USER, fields)).code == 16
        assert (await create(caller, "alice")).code == 0


@pytest.mark.feature("A19")
@pytest.mark.parametrize("name", ["users.json", "acls.json"])
async def test_start_with_a_broken_file_is_refused(settings: dict[str, str], clock: ManualClock, name: str) -> None:
    """A broker that asks nobody does not start without its users either: the next one may ask."""
    config = pathlib.Path(settings["storePathRootDir"]) / "config"
    await asyncio.to_thread(config.mkdir, parents=True)
    (config / name).write_text("{")
    with pytest.raises(ConfigError, match=name):
        async with Broker(BrokerConfig.from_java(settings), clock):
            pass
