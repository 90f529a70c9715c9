import pathlib
import shutil

import pytest
from javastores import STORES, JavaStores, load_truth
from logbuilder import LogBuilder
from pushing import SPOILS, fill, lose_topic, plan
from stores import StoreDirectory

from rocketlet.export.pushdown.queue_ends import queue_ends


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> StoreDirectory:
    """Return a store that was cleanly closed."""
    directory = StoreDirectory(tmp_path_factory.mktemp("ends") / "store")
    fill(directory)
    return directory


@pytest.mark.parametrize("name", STORES)
def test_ends_are_those_of_the_java_broker(name: str, java_stores: JavaStores, vectors: pathlib.Path) -> None:
    """Each queue of a Java broker's store ends where that broker says, batch queues too."""
    truth = load_truth(vectors, name)
    ends = queue_ends(plan(java_stores[name], 1 << 20))
    assert ends == {
        (topic["topic"], queue["queueId"]): queue["maxOffset"]
        for topic in truth["topics"]
        for queue in topic["queues"]
        if queue["maxOffset"]
    }


@pytest.mark.parametrize("spoil", [spoil for spoil in SPOILS if spoil != "lose_topic"])
def test_ends_are_found_in_the_log_where_queues_are_spoilt(
    spoil: str, filled: StoreDirectory, tmp_path: pathlib.Path
) -> None:
    """Whatever happened to queues and marks, the ends are those of the log."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    SPOILS[spoil](root)
    assert queue_ends(plan(root, 1 << 20)) == queue_ends(plan(filled.root, 1 << 20))


def test_topic_without_queues_has_no_ends(filled: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """A topic that was deleted begins anew: no queue of it has an end, though its messages are in the log."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    lose_topic(root)
    assert {topic for topic, _ in queue_ends(plan(root, 1 << 20))} == {"Rare", "%RETRY%group"}


def test_ends_are_those_of_the_planned_part(filled: StoreDirectory) -> None:
    """Of a part of the log, the ends are those that queues had at its end."""
    splits = plan(filled.root, 1 << 20)
    part = queue_ends(splits[:3])
    whole = queue_ends(splits)
    assert 0 < part["Orders", 0] < whole["Orders", 0] == 48


def test_ends_of_a_log_alone(log: LogBuilder) -> None:
    """Without queues the log is walked; half messages are in no queue; the last record of a queue counts."""
    log.add(topic="Old", queue_offset=70)
    log.add(topic="A", queue_id=1, queue_offset=9)
    log.add(topic="A", queue_id=1, queue_offset=50, sys_flag=0x4)
    log.add(topic="Old", queue_offset=0)
    log.save()
    assert queue_ends(plan(log.root)) == {("Old", 0): 1, ("A", 1): 10}
    assert queue_ends([]) == {}
