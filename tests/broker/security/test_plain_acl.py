"""Accounts of plain_acl.yml as users and policies; what an official broker makes of a file is in ``test_recorded``."""

import logging
import pathlib

import pytest

from rocketlet.broker.security.plain_acl import add_accounts, find_files, read_accounts
from rocketlet.broker.security.policies import AclTable
from rocketlet.broker.security.tables import SecurityTables
from rocketlet.broker.security.users import User, UserTable
from rocketlet.common.errors import ConfigError

WORD = "kept"


def imported(tmp_path: pathlib.Path, text: str, before: UserTable | None = None) -> SecurityTables:
    """Return the tables that are made of a file."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    return add_accounts(SecurityTables(before or UserTable(), AclTable()), read_accounts([str(path)]))


def lines(tables: SecurityTables) -> list[str]:
    """Return all policies as lines."""
    return [
        f"{acl.subject} {policy.policy_type} {entry.resource} {','.join(entry.actions or ())} {entry.decision}"
        for acl in tables.policies.list()
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]


@pytest.mark.feature("A18")
def test_permissions(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each permission has its actions; what is none is denied and said, as RocketMQ 4 meant it."""
    found = imported(
        tmp_path,
        """
        accounts:
        - accessKey: someone
          secretKey: 0123456789
          defaultTopicPerm: PUB|SUB
          topicPerms: [a=PUB, b=SUB, c=SUB|PUB, d=DENY, e=PBU, "f = PUB ", g, h=, i=PUB=SUB, j*=PUB]
          groupPerms: ["%RETRY%g=SUB"]
        """,
    )
    assert lines(found) == [
        "User:someone Custom Topic:a Pub Allow",
        "User:someone Custom Topic:b Sub Allow",
        "User:someone Custom Topic:c Pub,Sub Allow",
        "User:someone Custom Topic:d All Deny",
        "User:someone Custom Topic:e All Deny",
        "User:someone Custom Topic:f Pub Allow",
        "User:someone Custom Group:g Sub Allow",
        "User:someone Default Topic:* Pub,Sub Allow",
    ]
    said = "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert [name for name in "abcdefghij" if f"'{name}" in said or f"Topic:{name} " in said] == [
        "e",
        "g",
        "h",
        "i",
        "j",
    ]


@pytest.mark.feature("A18")
def test_secrets_are_texts_as_they_stand(tmp_path: pathlib.Path) -> None:
    """A secret of digits is not read as a number: its zeros count."""
    found = imported(tmp_path, "accounts:\n- {accessKey: 0123456, secretKey: 0123, admin: yes}\n").users.find("0123456")
    assert found is not None
    assert (found.password, found.is_super) == ("0123", True)


@pytest.mark.feature("A18")
def test_user_who_is_there_stays(tmp_path: pathlib.Path) -> None:
    """Neither the user nor policies of one whose name is taken come from the file."""
    old = User(name="someone", password=WORD)
    found = imported(
        tmp_path,
        "accounts:\n- {accessKey: someone, secretKey: another, topicPerms: [a=PUB]}\n- {accessKey: b, secretKey: c}\n",
        UserTable([old]),
    )
    assert (found.users.find("someone"), len(found.users), lines(found)) == (old, 2, [])


@pytest.mark.feature("A18")
def test_accounts_without_name_or_secret_are_passed_over(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is made with a blank secret."""
    found = imported(tmp_path, "accounts:\n- {accessKey: a, secretKey: ' '}\n- {secretKey: b}\n- {accessKey: c}\n")
    assert (len(found.users), caplog.text.count("is not imported")) == (0, 3)


@pytest.mark.parametrize("text", ["", "accounts:\n", "globalWhiteRemoteAddresses: [10.10.103.*]\n", "# nothing\n"])
def test_file_without_accounts_makes_nobody(tmp_path: pathlib.Path, text: str) -> None:
    """The file that comes with RocketMQ may have everything commented out."""
    assert len(imported(tmp_path, text).users) == 0


@pytest.mark.feature("A18", "A25")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts:\n- accessKey: a\n  secretKey: 'veryS3cret\n", "is no YAML in line 4, column 1"),
        ("accounts: veryS3cret\n", "cannot be used: Expected `array`, got `str` - at `$.accounts`"),
        ("accounts:\n- {accessKey: a, secretKey: [veryS3cret]}\n", "cannot be used: Expected `str`, got `array`"),
        ("- veryS3cret\n", "cannot be used"),
        ("accounts: &a\n- *a\n", "is no YAML in line 1, column 11"),
        ("veryS3cret: \0\n", "cannot be used"),
    ],
)
def test_broken_file_stops_the_import(tmp_path: pathlib.Path, text: str, words: str) -> None:
    """The error names the file and the place, and shows nothing of what stands there."""
    with pytest.raises(ConfigError, match=r"plain_acl\.yml") as caught:
        imported(tmp_path, text)
    assert words in str(caught.value)
    assert "S3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.feature("A18")
def test_files_of_an_installation(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below ROCKETMQ_HOME all files of conf/acl count, then conf/plain_acl.yml; a key counts in the first of them."""
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert find_files("") == []
    (tmp_path / "conf" / "acl" / "more").mkdir(parents=True)
    wanted = ["conf/acl/b.yaml", "conf/acl/more/a.yml", "conf/plain_acl.yml"]
    for name in (*wanted, "conf/tools.yml", "conf/acl/notes.txt"):
        (tmp_path / name).write_text(f"accounts:\n- {{accessKey: someone, secretKey: '{name}'}}\n")
    found = find_files("")
    assert found == [str(tmp_path / name) for name in wanted]
    assert [account.secret_key for account in read_accounts(found)] == ["conf/acl/b.yaml"]
    assert find_files("conf/tools.yml")[-1] == str(tmp_path / "conf" / "tools.yml")


@pytest.mark.feature("A18")
def test_start_without_a_file_to_import(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is named must be there, and without a name there must be an installation."""
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"needs rocketmq\.acl\.plain\.file") as caught:
        find_files("")
    assert caught.value.key == "migrateAuthFromV1Enabled"
    with pytest.raises(ConfigError, match="there is no file") as caught:
        find_files(str(tmp_path / "gone.yml"))
    assert caught.value.key == "rocketmq.acl.plain.file"
