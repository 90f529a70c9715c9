"""`rocketlet user` and `rocketlet acl` against a running cluster."""

import io
import json
from collections.abc import Callable

import pytest

Done = Callable[..., str]
Failed = Callable[..., str]
NewName = Callable[..., str]
WORD = "word-of-the-test"


class Terminal(io.StringIO):
    """Somebody who can be asked."""

    def isatty(self) -> bool:
        """Say that this is a terminal."""
        return True


def row(name: str, **changes: str) -> dict[str, str]:
    """Return a user as it is shown."""
    return {"user": name, "type": "Normal", "status": "enable", "password": "******", **changes}


@pytest.mark.feature("A10", "A25")
def test_user_is_made_listed_changed_and_deleted(done: Done, failed: Failed, new_name: NewName) -> None:
    """Each step is there with the next question, and no password is shown."""
    name = new_name()
    assert done("user", "create", name, "--password", WORD) == f"created user {name}\n"
    assert "The user is existed" in failed(1, "user", "create", name, "--password", WORD)
    assert json.loads(done("user", "show", name, "--json")) == row(name)
    assert json.loads(done("user", "list", "--filter", name, "--json")) == [row(name)]
    assert done("user", "update", name, "--super", "--disable") == f"changed user {name}\n"
    shown = done("user", "show", name)
    assert shown == f"name\tvalue\nuser\t{name}\ntype\tSuper\nstatus\tdisable\npassword\t******\n"
    done("user", "update", name, "--normal", "--broker", "broker-a")
    assert json.loads(done("user", "show", name, "--json")) == row(name, status="disable")
    assert done("user", "delete", name, "--yes") == f"deleted user {name}\n"
    assert failed(1, "user", "show", name) == f"there is no user {name}"
    assert failed(1, "user", "delete", name, "--yes") == f"there is no user {name}"
    assert "The user is not exist" in failed(1, "user", "update", name, "--super")


@pytest.mark.feature("A25")
def test_password_is_asked_for_or_read(
    done: Done, failed: Failed, new_name: NewName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not stand in the list of processes; where nobody can be asked it must be given."""
    name = new_name()
    assert "--password" in failed(2, "user", "create", name)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{WORD}\nmore\n"))
    done("user", "create", name, "--password-stdin")
    both = ("--password-stdin", "--password", WORD)
    assert "cannot be used together" in failed(2, "user", "update", name, *both)
    assert failed(2, "user", "update", name) == "nothing is to be changed"


@pytest.mark.feature("A11")
def test_rights_are_given_shown_changed_and_taken(done: Done, failed: Failed, new_name: NewName) -> None:
    """A right is made once, then changed; taken one by one, or all at once."""
    name = new_name()
    done("user", "create", name, "--password", WORD)
    rights = ("--resource", "Topic:orders", "--resource", "Group:bill*", "--action", "pub", "--action", "Sub")
    made = done("acl", "create", name, *rights)
    assert made == f"created rights of user {name} for Topic:orders, Group:bill*\n"
    again = failed(1, "acl", "create", name, *rights)
    assert again == f"user {name} has a right for Topic:orders; rocketlet acl update is for that"
    done("acl", "create", name, "--resource", "Topic:*", "--action", "Get", "--default")
    denied = ("--resource", "Topic:orders", "--action", "All", "--deny", "--source-ip", "10.0.0.0/8")
    assert done("acl", "update", name, *denied) == f"changed rights of user {name} for Topic:orders\n"
    missing = failed(1, "acl", "update", name, "--resource", "Topic:o", "--action", "All")
    assert missing == f"user {name} has no right for Topic:o; rocketlet acl create is for that"
    lines = done("acl", "show", name).splitlines()
    assert lines == [
        "user\tpolicy\tresource\tactions\tdecision\tsource ips",
        f"{name}\tCustom\tTopic:orders\tAll\tDeny\t10.0.0.0/8",
        f"{name}\tCustom\tGroup:bill*\tPub,Sub\tAllow\t",
        f"{name}\tDefault\tTopic:*\tGet\tAllow\t",
    ]
    [told] = json.loads(done("acl", "list", "--user", name, "--resource", "bill", "--json"))
    assert (told["actions"], told["source_ips"], told["policy"]) == (["Pub", "Sub"], [], "Custom")
    assert failed(1, "acl", "delete", name, "--resource", "Topic:o", "--yes") == f"user {name} has no right for Topic:o"
    done("acl", "delete", name, "--resource", "Topic:orders", "--yes")
    done("acl", "delete", name, "--resource", "Topic:*", "--default", "--yes")
    assert len(done("acl", "show", name).splitlines()) == 2
    assert done("acl", "delete", name, "--yes") == f"deleted rights of user {name} for all resources\n"
    assert len(done("acl", "show", name).splitlines()) == 1
    assert "The subject is not exist." in failed(1, "acl", "show", f"{name}-gone")


@pytest.mark.feature("A10", "A11")
def test_deletions_are_asked_about(
    verb: Callable[..., tuple[object, str, str]],
    done: Done,
    failed: Failed,
    new_name: NewName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing goes without a yes, and where nobody can be asked without ``--yes``."""
    name = new_name()
    done("user", "create", name, "--password", WORD)
    done("acl", "create", name, "--resource", "*", "--action", "All")
    assert "--yes is needed" in failed(2, "user", "delete", name)
    assert "--yes is needed" in failed(2, "acl", "delete", name)
    monkeypatch.setattr("sys.stdin", Terminal("n\nn\n"))
    assert verb("user", "delete", name)[0] == 130
    assert verb("acl", "delete", name)[0] == 130
    assert len(done("acl", "show", name).splitlines()) == 2
