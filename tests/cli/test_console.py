"""`rocketlet console`, and the console of `rocketlet up`, as processes."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
from collections.abc import Generator

import httpx
import pytest
from command_line import COMMAND, Refuse, Running, Start

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def test_console_over_a_cluster(start: Start) -> None:
    """It is of any cluster that can be reached, and ends at a signal."""
    cluster = start("up", "--ephemeral", *FREE_PORTS)
    running = start("console", "--namesrv", cluster.addresses["namesrv"], "--console-port", "0")
    assert re.fullmatch(r"ready console=http://127\.0\.0\.1:\d+/\n", running.ready)
    assert httpx.get(f"{running.addresses['console']}brokers", trust_env=False).status_code == 200
    assert running.stop() == (0, "", "")


def test_console_beside_a_broker(start: Start) -> None:
    """Its address is the last one of the ready line; on all addresses it has a token."""
    everywhere = "0.0.0.0"  # noqa: S104 # the case: others can reach it
    running = start("up", "--ephemeral", *FREE_PORTS, "--console-port", "0", "--host", everywhere)
    assert re.fullmatch(r"ready namesrv=\S+ broker=\S+ grpc=\S+ console=http://\S+/\?token=\S+\n", running.ready)
    url = running.ready.rpartition("console=")[2].strip()
    assert httpx.get(url, trust_env=False, follow_redirects=True).status_code == 200
    assert httpx.get(url.partition("?")[0], trust_env=False).status_code == 403
    assert running.stop()[0] == 0


@pytest.mark.parametrize("command", [("console", "--namesrv", "127.0.0.1:1"), ("up", "--ephemeral", *FREE_PORTS)])
def test_console_names_who_has_its_port(refuse: Refuse, command: tuple[str, ...]) -> None:
    """One line says which port is taken, by whom, and which option takes another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refuse(*command, "--console-port", port)
    assert re.fullmatch(
        rf".*127\.0\.0\.1:{port}: the address is in use by process \d+ \(\S+\); --console-port .*\n", said
    )


def test_console_without_a_name_server(refuse: Refuse) -> None:
    """It says what is missing."""
    assert "NAMESRV_ADDR" in refuse("console", "--console-port", "0")


@pytest.fixture
def secured(tmp_path: pathlib.Path) -> str:
    """Return a file with settings of servers that take TLS alone and signed requests."""
    made = subprocess.run([*COMMAND, "tls", "make-test-ca", "ca"], cwd=tmp_path, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    (tmp_path / "secured.conf").write_text(
        "tls.server.mode=enforcing\n"
        "tls.server.certPath=ca/server.pem\n"
        "tls.server.keyPath=ca/server.key\n"
        "tls.client.trustCertPath=ca/ca.pem\n"
        "authenticationEnabled=true\n"
        "authorizationEnabled=true\n"
        'initAuthenticationUser={"username":"admin","password":"admin-secret"}\n'
        'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"inner-secret"}\n'
    )
    return "secured.conf"


@contextlib.contextmanager
def open_page(running: Running) -> Generator[httpx.Client]:
    """Open the address that was printed in a browser, which goes on at the address without its token."""
    url = running.ready.rpartition("console=")[2].strip()
    assert "?token=" in url
    assert httpx.get(url.partition("?")[0], trust_env=False).status_code == 403
    plain = url.partition("?")[0]
    with httpx.Client(base_url=plain, trust_env=False, follow_redirects=True, timeout=30) as browser:
        assert browser.get(url).status_code == 200
        yield browser


def send_by_form(browser: httpx.Client, topic: str, body: str) -> httpx.Response:
    """Return where the form leads that sends a message."""
    key = re.search(r'name="form-key" value="([^"]+)"', browser.get(f"topics/{topic}").text)
    assert key
    return browser.post(f"topics/{topic}/send", data={"form-key": key[1], "body": body})


@pytest.mark.feature("A5", "A12")
def test_console_of_a_secured_cluster(start: Start, secured: str, tmp_path: pathlib.Path) -> None:
    """It needs its token; a super user may do all, and what another one may not is said in the broker's words."""
    cluster = start("up", "--store", "store", "-c", secured, *FREE_PORTS, "--console-port", "0", "--topic", "orders")
    namesrv = cluster.addresses["namesrv"]
    with open_page(cluster) as own:
        found = re.search(r'href="/(brokers/[^"]+)"', own.get("brokers").text)
        assert found
        assert "commitLogDiskRatio" in own.get(found[1]).text
        send_by_form(own, "orders", "by the own one")
        assert "by the own one" in own.get("topics/orders/messages").text
    reached = ("console", "--namesrv", namesrv, "--console-port", "0", "--tls", "--tls-trust", "ca/ca.pem")
    keys = {"ROCKETMQ_ACCESS_KEY": "admin", "ROCKETMQ_SECRET_KEY": "admin-secret"}
    other = start(*reached, **keys)
    with open_page(other) as admin:
        send_by_form(admin, "orders", "by another")
        shown = admin.get("topics/orders/messages").text
        assert "by another" in shown
        assert "by the own one" in shown
    assert other.stop() == (0, "", "")
    shop = ("user", "create", "shop", "--password", "shop-secret", "--namesrv", namesrv, *reached[-3:])
    environment = {**os.environ, **keys}
    subprocess.run([*COMMAND, *shop], cwd=tmp_path, env=environment, check=True, capture_output=True)
    lesser = start(*reached, "--access-key", "shop", **{**keys, "ROCKETMQ_SECRET_KEY": "shop-secret"})
    with open_page(lesser) as browser:
        for page in ("topics/orders", "topics/orders/messages", "brokers"):
            assert "User:shop has no permission to access" in browser.get(page).text, page
    unsigned = start(*reached)
    assert "username cannot be null" in httpx.get(f"{unsigned.addresses['console']}brokers", trust_env=False).text
    assert cluster.stop()[0] == 0
