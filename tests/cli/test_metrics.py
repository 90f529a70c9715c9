"""The metrics of `rocketlet up` and `rocketlet broker`, as processes."""

import pathlib
import re
import socket

import httpx
from command_line import Refuse, Start

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def test_metrics_beside_a_broker(start: Start) -> None:
    """Their address is in the ready line, behind the broker's; all ends at a signal."""
    running = start("up", "--ephemeral", *FREE_PORTS, "--metrics-port", "0")
    assert re.fullmatch(r"ready namesrv=\S+ broker=\S+ metrics=http://127\.0\.0\.1:\d+/\w+ grpc=\S+\n", running.ready)
    answer = httpx.get(running.addresses["metrics"], trust_env=False)
    assert 'rocketmq_topic_number{cluster="DefaultCluster",node_id="broker-a"' in answer.text
    assert running.stop()[0] == 0


def test_metrics_of_a_property_file(start: Start) -> None:
    """Java's keys serve them too, also of a broker that runs alone, at an address of their own."""
    given = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0", "metricsPromExporterHost": "127.0.0.2"}
    pairs = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    running = start("broker", "--ephemeral", "--broker-port", "0", *pairs)
    assert re.fullmatch(r"ready broker=\S+ metrics=http://127\.0\.0\.2:\d+/metrics\n", running.ready)
    assert httpx.get(running.addresses["metrics"], trust_env=False).status_code == 200
    assert running.stop()[0] == 0


def test_metrics_of_several_brokers(start: Start) -> None:
    """Each broker has its own."""
    running = start("up", "--ephemeral", "--brokers", "2", *FREE_PORTS, "--metrics-port", "0")
    urls = running.addresses["metrics"].split(",")
    pages = [httpx.get(url, trust_env=False).text for url in urls]
    assert [{*re.findall(r'node_id="([^"]*)"', page)} for page in pages] == [{"broker-a"}, {"broker-b"}]
    assert running.stop()[0] == 0


def test_metrics_name_who_has_their_port(refuse: Refuse) -> None:
    """One line says which port is taken, by whom, and which option takes another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refuse("up", "--ephemeral", *FREE_PORTS, "--metrics-port", port)
    assert re.fullmatch(rf".*127\.0\.0\.1:{port}: the address is in use by process \d+ \(.*; --metrics-port .*\n", said)


def test_metrics_without_their_extra(refuse: Refuse, tmp_path: pathlib.Path) -> None:
    """One line says what to install."""
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError(name='prometheus_client')\n")
    said = refuse("up", "--ephemeral", *FREE_PORTS, "--metrics-port", "0", behind=["env", f"PYTHONPATH={tmp_path}"])
    assert "metrics need prometheus_client: pip install 'rocketlet[metrics]'" in said
