"""What the verbs say where an official broker refuses them: to whom it does, what was asked of whom, and what helps."""

import asyncio
import re
from collections.abc import Callable

import pytest
from command_line import Run, Start, run_in_process
from interop.secured import USER, create_user
from interop.servers import Server

from rocketlet.client import Credentials

UNSIGNED = "username cannot be null; signed requests are wanted: give --access-key and --secret-key"
WRONG = "check signature failed; the secret key is not that of the access key"
VERBS = (
    *("topic create new", "topic update kept --queues 2", "topic show kept", "topic delete kept --yes"),
    *("group create new", "group list", "group show kept", "group members kept", "group update kept --retries 3"),
    *("group delete kept --yes", "offset show kept kept", "offset lag kept", "offset lag"),
    *("offset reset kept kept --to begin --yes", "offset copy kept other kept --yes", "message send kept body"),
    *("message query kept --key k", "message query kept --queue 0 --offset 0", "message show kept {id}"),
    *("message resend kept {id} --to kept", "message tail kept --from begin --until end", "message tail kept"),
    *("dlq list", "dlq show kept", "dlq resend kept --all", "client list", "client show nobody", "cluster status"),
    *("broker status broker-a", "config get maxMessageSize --broker broker-a"),
    "config set maxMessageSize=4194304 --broker broker-a",
)
OPEN = ("topic list", "cluster list", "broker list")
"""What name servers alone are asked for: these ask nobody who sends."""
WITHOUT_RIGHTS = (
    *("topic create new", "topic update kept --queues 2", "topic delete kept --yes", "group delete kept --yes"),
    *("offset reset kept kept --to begin --yes", "message send kept body", "message query kept --key k"),
    *("message tail kept --from begin --until end", "message show kept {id}"),
)
"""What needs a right at a 5.4.0 broker; lists, settings and figures need none."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], secured: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a call that runs ``rocketlet ARGUMENTS`` here, and returns exit code, stdout and stderr."""
    monkeypatch.setenv("NAMESRV_ADDR", secured.namesrv)
    return lambda *arguments: run_in_process(capsys, str(arguments[0]))(*arguments[1:])


@pytest.fixture
def run_as(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[Credentials | None, str], tuple[object, str, str]]:
    """Return a call that runs a line of a user's, or of nobody's."""

    def run_line(user: Credentials | None, line: str) -> tuple[object, str, str]:
        for name, value in (
            ("ROCKETMQ_ACCESS_KEY", user and user.access_key),
            ("ROCKETMQ_SECRET_KEY", user and user.secret_key),
        ):
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        return run(*line.split())

    return run_line


RunAs = Callable[[Credentials | None, str], tuple[object, str, str]]


@pytest.fixture
def message_id(run_as: RunAs) -> str:
    """Return the id of a message in a topic, whose group has dead letters as well; what exists already stays."""
    for line in ("topic create kept --queues 1", "topic create %DLQ%kept --queues 1", "group create kept"):
        run_as(USER, line)
    sent = [run_as(USER, line) for line in ("message send %DLQ%kept dead", "message send kept body --key k")]
    assert [(code, err) for code, _, err in sent] == [(0, "")] * 2
    return sent[-1][1].splitlines()[1].split("\t")[4]


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (None, UNSIGNED),
        (Credentials(USER.access_key, "wrong"), WRONG),
        (Credentials("nobody", USER.secret_key), "User:nobody is not found."),
    ],
    ids=["no keys", "wrong secret", "unknown user"],
)
def test_refused_without_the_right_keys(
    user: Credentials | None, reason: str, message_id: str, secured: Server, run_as: RunAs
) -> None:
    """Each verb that asks a broker ends with exit code 1 and one line: who refused what, why, and what helps."""
    told = {line: run_as(user, line.format(id=message_id)) for line in VERBS}
    assert {line: code for line, (code, _, _) in told.items() if code != 1} == {}
    places = (f"{secured.broker} answered 16 to ", "broker-a answered 16")
    assert {line: err for line, (_, _, err) in told.items() if not any(map(err.__contains__, places))} == {}
    assert {line: err for line, (_, _, err) in told.items() if not err.endswith(f": {reason}\n")} == {}
    assert {line: err for line, (_, _, err) in told.items() if err.count("\n") != 1} == {}
    assert {line: run_as(user, line)[0] for line in OPEN} == dict.fromkeys(OPEN, 0)


def test_refused_without_rights(message_id: str, secured: Server, run_as: RunAs) -> None:
    """A user whom the broker knows is told what he has no access to."""
    alice = Credentials("alice", "12345678")
    asyncio.run(create_user(secured.broker, alice))
    told = {line: run_as(alice, line.format(id=message_id)) for line in WITHOUT_RIGHTS}
    assert {line: code for line, (code, _, _) in told.items() if code != 1} == {}
    named = re.compile(
        r" answered 16.*: User:alice has no permission to access (Topic|Group):(kept|new) from 127\.0\.0\.1, no matched"
    )
    assert {line: err for line, (_, _, err) in told.items() if not named.search(err)} == {}


def test_servers_that_take_tls_otherwise(run_as: RunAs, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody vouches for and a server without TLS are exit code 3, and what helps is said."""
    code, _, err = run_as(USER, "topic list --tls")
    assert (code, err.partition(";")[2]) == (
        3,
        " --tls-trust names the certificates to trust, --tls-trust-all takes any\n",
    )
    plain = start("namesrv", "--namesrv-port", "0", "--set", "tls.server.mode=disabled")
    monkeypatch.setenv("NAMESRV_ADDR", plain.addresses["namesrv"])
    code, _, err = run_as(USER, "topic list --tls --tls-trust-all")
    assert (code, err.partition(";")[2]) == (3, " it may take no TLS\n")
