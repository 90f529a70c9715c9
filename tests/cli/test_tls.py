"""TLS from the command line: certificates, servers that take nothing else, and what of it nobody shall see."""

import os
import pathlib
import subprocess

import pytest
from command_line import COMMAND, Refuse, Start
from cryptography.hazmat.primitives import serialization

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
SECRET = "s3cret-of-a-key"  # noqa: S105 # of a key that is made here
ENFORCING = ("--set", "tls.server.mode=enforcing")


def run(directory: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``rocketlet ARGUMENTS``."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=directory, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> str:
    """Return a file with the settings that a new test authority is told to need."""
    made = run(tmp_path, "tls", "make-test-ca", "ca", "--host", "broker.example")
    assert made.returncode == 0, made.stderr
    lines = [line for line in made.stdout.splitlines() if not line.startswith(("#", "--tls"))]
    (tmp_path / "tls.conf").write_text("\n".join(lines) + "\n")
    return "tls.conf"


def test_test_authority(tmp_path: pathlib.Path, settings: str, refuse: Refuse) -> None:
    """Its files are private, nothing is overwritten, and the settings that it tells are known keys with these files."""
    files = sorted(os.listdir(tmp_path / "ca"))
    assert files == ["ca.key", "ca.pem", "client.key", "client.pem", "server.key", "server.pem"]
    assert {(tmp_path / "ca" / name).stat().st_mode & 0o777 for name in files} == {0o600}
    before = {name: (tmp_path / "ca" / name).read_bytes() for name in files}
    assert "is there already, and nothing is overwritten" in refuse("tls", "make-test-ca", "ca")
    assert {name: (tmp_path / "ca" / name).read_bytes() for name in files} == before
    assert "tls.server.certPath" in (tmp_path / settings).read_text()


@pytest.mark.feature("A4", "A5")
def test_cluster_that_takes_tls_alone_and_asks_for_certificates(
    tmp_path: pathlib.Path, settings: str, start: Start
) -> None:
    """Brokers register, topics are made, verbs send and read, and the state is told; who shows nothing is told why."""
    running = start("up", "--ephemeral", "--brokers", "2", "--topic", "first", "-c", settings, *FREE_PORTS)
    where = ("--namesrv", running.addresses["namesrv"])
    tls = ("--tls", "--tls-trust", "ca/ca.pem")
    shown = ("--tls-cert", "ca/client.pem", "--tls-key", "ca/client.key")
    assert run(tmp_path, "message", "send", "first", "hello", *where, *tls, *shown).returncode == 0
    listed = run(tmp_path, "topic", "list", *where, *tls, *shown)
    assert "first" in listed.stdout, listed.stderr
    nothing = run(tmp_path, "topic", "list", *where, *tls)
    assert nothing.returncode == 3
    assert nothing.stderr.endswith("; if it asks who connects: --tls-cert and --tls-key\n")
    plain = run(tmp_path, "topic", "list", *where)
    assert plain.returncode == 3
    assert plain.stderr.endswith("; if it takes connections under TLS alone: --tls\n")
    assert running.stop()[0] == 0


@pytest.mark.feature("A5")
def test_server_with_a_certificate_of_its_own(tmp_path: pathlib.Path, start: Start) -> None:
    """It takes TLS alone without a file, says which options the verbs need, and ``status`` finds it ready."""
    running = start("up", "--store", "store", *ENFORCING, *FREE_PORTS)
    assert "ready" in run(tmp_path, "status", "--store", "store").stdout
    sent = run(
        tmp_path, "message", "send", "T", "x", "--namesrv", running.addresses["namesrv"], "--tls", "--tls-trust-all"
    )
    assert sent.returncode == 0, sent.stderr
    assert (tmp_path / "store" / "config" / "self-signed.pem").stat().st_mode & 0o777 == 0o600
    assert "--tls --tls-trust-all" in running.stop()[2]


def test_settings_that_contradict_each_other(refuse: Refuse) -> None:
    """The start stops with a line that names the key: where brokers could not register, and where files are missing."""
    up = ("up", "--ephemeral", *FREE_PORTS)
    assert "tls.enable=false" in refuse(*up, *ENFORCING, "--set", "tls.enable=false")
    assert "tls.enable=true" in refuse(*up, "--set", "tls.server.mode=disabled", "--set", "tls.enable=true")
    required = ("--set", "tls.server.need.client.auth=require")
    assert "tls.server.trustCertPath" in refuse(*up, *required)
    assert "tls.client.certPath" in refuse(*up, *ENFORCING, *required, "--set", "tls.server.trustCertPath=ca.pem")
    assert "tls.server.certPath" in refuse(*up, "--set", "tls.server.certPath=none.pem")
    assert "tlsCertPath" in refuse(*up, "--set", "tlsCertPath=none.pem")  # before a client of RocketMQ 5 knocks
    assert "tls.config.file none.properties cannot be read" in refuse(*up, "--set", "tls.config.file=none.properties")


@pytest.mark.feature("A25")
def test_passwords_are_seen_nowhere(tmp_path: pathlib.Path, settings: str, start: Start) -> None:
    """Neither in the list of settings, nor in the arguments of the brokers' processes, which know them."""
    key = (tmp_path / "ca" / "server.key").read_bytes()
    encrypted = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(SECRET.encode()),
    )
    (tmp_path / "ca" / "server.key").write_bytes(encrypted)
    (tmp_path / "tls.properties").write_text(f"tls.server.keyPassword={SECRET}\n")
    options = ("-c", settings, "--set", "tls.config.file=tls.properties", *FREE_PORTS)
    listed = run(tmp_path, "up", "--ephemeral", "--print-config", *options)
    assert "******" in listed.stdout, listed.stderr
    assert SECRET not in listed.stdout
    running = start("up", "--ephemeral", "--brokers", "2", *options)
    own = pathlib.Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    if own.exists():
        children = own.read_text().split()
        assert len(children) == 2
        for child in children:
            assert SECRET not in pathlib.Path(f"/proc/{child}/cmdline").read_text()
            assert SECRET not in pathlib.Path(f"/proc/{child}/environ").read_text()
    assert SECRET not in running.stop()[2]
