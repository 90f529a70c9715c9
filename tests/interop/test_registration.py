"""A broker of ours with many topics at the official name server that takes back what a registration leaves out."""

import json
import pathlib
from collections.abc import Iterator

import pytest
from interop.clients import Admin
from interop.driver import Driver
from interop.parts import Part, start_broker
from interop.toolchain import java_command
from interop.versions import skipped_without

from rocketlet.store.files.config_files import save_config_text

FORGETFUL = {"deleteTopicWithBrokerRegistration": "true"}


@pytest.fixture
def java_nameserver() -> Iterator[Driver]:
    """Run a process in which the official name server can start."""
    with skipped_without("the official name server"), Driver("java-server", java_command) as process:
        yield process


def save_topics(store: pathlib.Path, count: int) -> set[str]:
    """Give a broker that has not started so many topics; return their names."""
    names = [f"Topic-{number:06d}-{'x' * 100}" for number in range(count)]
    topics = {name: {"topicName": name, "attributes": {"+message.type": "NORMAL"}} for name in names}
    save_config_text(str(store / "config" / "topics.json"), json.dumps({"topicConfigTable": topics}))
    return {*names, "TBW102"}


def routed_topics(java: Driver, namesrv: str) -> set[str]:
    """Return the topics of a name server as the official tools list them."""
    with Admin(java, namesrv=namesrv) as admin:
        return set(admin.call("fetchAllTopicList")["topicList"])


@pytest.mark.parametrize("count", [12_000, 60_000])
def test_official_name_server_keeps_all_topics(
    java: Driver, java_nameserver: Driver, tmp_path: pathlib.Path, count: int
) -> None:
    """All topics of one compressed registration have routes, also when one is created, and after its restart."""
    names = save_topics(tmp_path / "broker-a", count)

    def start(port: str | None = None) -> str:
        about = {"name": "n", "directory": str(tmp_path), "settings": FORGETFUL, "port": port}
        return java_nameserver.call("namesrv.start", **about)["address"]

    namesrv = start()
    with start_broker(tmp_path, "broker-a", namesrv) as broker:
        with Admin(java, namesrv=namesrv) as admin:
            admin.await_route("TBW102")
            assert routed_topics(java, namesrv) >= names
            admin.create_topic(broker.address, "created")
        names.add("created")
        assert routed_topics(java, namesrv) >= names
        java_nameserver.call("namesrv.stop", name="n")
        start(namesrv.rpartition(":")[2])
        with Admin(java, namesrv=namesrv) as admin:
            admin.await_route("created")
        assert routed_topics(java, namesrv) >= names


def test_our_name_server_keeps_all_topics(java: Driver, tmp_path: pathlib.Path) -> None:
    """Ours does the same for a process of its own."""
    names = save_topics(tmp_path / "broker-a", 60_000)
    about = ["--namesrv-port", "0", "--set", "deleteTopicWithBrokerRegistration=true"]
    with Part("namesrv", *about) as namesrv, start_broker(tmp_path, "broker-a", namesrv.address):
        assert routed_topics(java, namesrv.address) >= names
