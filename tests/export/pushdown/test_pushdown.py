import pathlib
import shutil
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from javastores import STORES, JavaStores, Row, load_truth
from logbuilder import FIRST_MS, LogBuilder
from pushing import SPOILS, TAGS, check, configure, fill, looked_at, plan, push, read
from stores import TINY, StoreDirectory, new_record

from examples import examples
from rocketlet.common.errors import ConfigError
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.export.plan import store_queues as queuefiles
from rocketlet.export.plan.selection import Selection
from rocketlet.export.plan.store_queues import MARGIN_MS
from rocketlet.export.pushdown.pushdown import CLOCK_MS, PushdownOptions, check_topics, push_down
from rocketlet.store.commitlog.record_blocks import Structs
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS
from rocketlet.store.files.store_config import BATCH_UNIT_BYTES

INDEX_SIZES = TINY["index_slots"], TINY["index_entries"]
ORDERS, RARE = frozenset({"Orders"}), frozenset({"Rare"})
SELECTIONS = {
    "everything": Selection(includes_system=True),
    "topic": Selection(ORDERS),
    "rare topic": Selection(RARE),
    "two topics": Selection(ORDERS | RARE),
    "filtered topic": Selection(among=ORDERS),
    "filtered system topic": Selection(among=frozenset({"%RETRY%group", "Rare"})),
    "retry topic": Selection(frozenset({"%RETRY%group"})),
    "unknown topic": Selection(frozenset({"Other"})),
    "no topic": Selection(ORDERS, among=RARE),
    "queue": Selection(ORDERS, queue_ids=frozenset({1})),
    "unknown queue": Selection(ORDERS, queue_ids=frozenset({0, 9})),
    "queue without topic": Selection(queue_ids=frozenset({1})),
    "offsets": Selection(ORDERS, from_offset=7, until_offset=31),
    "tag": Selection(ORDERS, frozenset({"Aa"})),
    "tags": Selection(ORDERS, frozenset({"BB", "C"}), queue_ids=frozenset({0, 2})),
    "key": Selection(ORDERS, keys=frozenset({"k100"})),
    "common key": Selection(ORDERS | RARE, keys=frozenset({"Aa"})),
    "key and tag": Selection(RARE, frozenset({"C"}), frozenset({"other"})),
    "unknown key": Selection(RARE, keys=frozenset({"k1000"})),
}
TRIED = ("rare topic", "two topics", "queue", "offsets", "tag", "key", "common key")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> StoreDirectory:
    """Return a store that was cleanly closed."""
    directory = StoreDirectory(tmp_path_factory.mktemp("filled") / "store")
    fill(directory)
    return directory


@pytest.fixture(scope="module")
def truth(filled: StoreDirectory) -> dict[str, list[Row]]:
    """Return the rows of each selection, read without pushing down."""
    splits = plan(filled.root, 1 << 20)
    return {name: read(splits, selection)[0] for name, selection in SELECTIONS.items()}


@pytest.mark.parametrize("split_bytes", [700, 1 << 20])
def test_pushing_down_does_not_change_the_rows(
    split_bytes: int, filled: StoreDirectory, truth: dict[str, list[Row]]
) -> None:
    """Of a sound store, the same rows are read with and without pushing down, whatever is selected."""
    for name, selection in SELECTIONS.items():
        assert push(filled.root, selection, split_bytes, index_sizes=INDEX_SIZES)[2] == truth[name], name


@pytest.mark.parametrize("spoil", SPOILS)
def test_pushing_down_trusts_nothing_that_is_spoilt(
    spoil: str, filled: StoreDirectory, truth: dict[str, list[Row]], tmp_path: pathlib.Path
) -> None:
    """Whatever happened to queues, index and marks of a store, the rows are those of the log."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    SPOILS[spoil](root)
    for name in TRIED:
        assert push(root, SELECTIONS[name], 1 << 20, index_sizes=INDEX_SIZES)[2] == truth[name], name


@pytest.mark.parametrize(
    ("selection", "most"),
    [
        ("rare topic", 4),
        ("filtered system topic", 18),
        ("queue", 48),
        ("tag", 72),
        ("key", 1),
        ("unknown key", 0),
        ("no topic", 0),
    ],
)
def test_only_what_may_be_wanted_is_looked_at(selection: str, most: int, filled: StoreDirectory) -> None:
    """Queues lead to the records of a topic, queue, range or tag hash, index files to those of a key."""
    pushed, records = check(filled.root, SELECTIONS[selection], 1 << 20, index_sizes=INDEX_SIZES)
    assert records <= most
    assert pushed.stores[str(filled.root)].texts


def test_queues_that_vanish_after_planning_do_no_harm(filled: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """A task that does not find the files of a queue walks the log."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    pushed = push_down(plan(root), SELECTIONS["queue"])
    shutil.rmtree(root / "consumequeue")
    rows, report = read(pushed.splits, SELECTIONS["queue"])
    assert rows == read(plan(root), SELECTIONS["queue"])[0]
    assert looked_at(report) == 160


def test_walk_where_most_is_wanted(filled: StoreDirectory) -> None:
    """A topic that makes up most of the log is read by walking the log, which costs less."""
    _, records = check(filled.root, SELECTIONS["topic"], 1 << 20)
    assert records == 160


@settings(max_examples=examples(40), deadline=None)
@given(
    st.frozensets(st.sampled_from(["Orders", "Rare", "%RETRY%group", "Other"]), min_size=1),
    st.frozensets(st.sampled_from(["Aa", "BB", "C"])),
    st.frozensets(st.sampled_from(["Aa", "BB", "other", "k7", "k50", "k1"])),
    st.none() | st.frozensets(st.integers(0, 3)),
    st.tuples(st.none() | st.integers(0, 50), st.none() | st.integers(0, 50)),
    st.integers(300, 5000),
)
def test_any_selection_and_split_size_gives_the_same_rows(
    filled: StoreDirectory,
    truth: dict[str, list[Row]],
    topics: frozenset[str],
    tags: frozenset[str],
    keys: frozenset[str],
    queue_ids: frozenset[int] | None,
    offsets: tuple[int | None, int | None],
    split_bytes: int,
) -> None:
    """What is read with everything pushed down is what plain Python finds in the rows of the whole log."""
    first, stop = offsets
    selection = Selection(topics, tags, keys, queue_ids=queue_ids, from_offset=first, until_offset=stop)
    expected = [
        row
        for row in truth["everything"]
        if row["topic"] in topics
        and (not tags or row["tags"] in tags)
        and (not keys or keys & set(row["keys"]))
        and (queue_ids is None or row["queueId"] in queue_ids)
        and (first or 0) <= row["queueOffset"] < (1 << 60 if stop is None else stop)
    ]
    assert push(filled.root, selection, split_bytes, index_sizes=INDEX_SIZES)[2] == expected


def test_nothing_is_used_that_must_not_be(filled: StoreDirectory) -> None:
    """Without queues, and without a filter that they serve, the splits are left as they are."""
    splits = plan(filled.root)
    assert push_down(splits, SELECTIONS["topic"], PushdownOptions(uses_queues=False)).splits == splits
    assert push_down(splits, SELECTIONS["queue without topic"]).splits == splits
    assert push_down(splits, Selection()) == (splits, {})
    assert push_down([], SELECTIONS["topic"]) == ([], {})


def test_index_of_unknown_sizes_is_understood_when_it_is_full(filled: StoreDirectory) -> None:
    """Full index files tell their sizes by themselves; other sizes than given ones are no error."""
    for sizes in (None, (7, 11)):
        _, records = check(filled.root, SELECTIONS["key"], index_sizes=sizes)
        assert records == 1


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> StoreDirectory:
    """Return a store with batches, whose parts have keys and tags of their own, and with delayed messages."""
    directory = StoreDirectory(tmp_path_factory.mktemp("mixed") / "store", batch_file_bytes=4 * BATCH_UNIT_BYTES)
    with directory.open() as store:
        store.set_batch_topics(["Batches"])
        for number in range(40):
            directory.now_ms += 10
            texts = [encode_properties({"KEYS": f"b{number}-{part}", "TAGS": TAGS[part] or ""}) for part in range(3)]
            body = encode_batch(BatchPart(0, b"%d" % number, text) for text in texts)
            batch = new_record("Batches", 0, body, UNIQ_KEY=f"U{number}")
            batch.sys_flag |= INNER_BATCH_FLAGS
            store.append(batch)
            store.append(new_record(SCHEDULE_TOPIC, 0, UNIQ_KEY=f"D{number}", TAGS=TAGS[number % 2] or "", DELAY="1"))
            store.append(new_record("Orders", 0, UNIQ_KEY=f"O{number}", TAGS="Aa", KEYS=f"k{number}"))
            store.commit()
    configure(directory.root, {"Batches": 1, SCHEDULE_TOPIC: 1, "Orders": 1})
    return directory


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        (Selection(frozenset({"Batches"}), keys=frozenset({"b7-1", "b30-2"})), 2),
        (Selection(ORDERS | {"Batches"}, keys=frozenset({"b7-1", "k9"})), 2),
        (Selection(frozenset({"Batches"}), frozenset({"C"})), 40),
        (Selection(frozenset({"Batches"}), from_offset=70, until_offset=77), 7),
        (Selection(ORDERS | {"Batches"}, from_offset=30), 100),
        (Selection(frozenset({SCHEDULE_TOPIC}), frozenset({"Aa"})), 20),
        (Selection(ORDERS | {SCHEDULE_TOPIC}, frozenset({"Aa"})), 60),
    ],
)
def test_queues_and_index_that_do_not_tell_lose_no_row(selection: Selection, rows: int, mixed: StoreDirectory) -> None:
    """The index has no keys of parts of batches, queues of batches count units, delayed messages' entries no tag."""
    pushed, _, found = push(mixed.root, selection, 1 << 20, index_sizes=INDEX_SIZES)
    assert found == read(plan(mixed.root), selection)[0]
    assert len(found) == rows
    narrowed = pushed.stores[str(mixed.root)]
    assert any("queues" in text for text in narrowed.texts)
    assert ("Batches", 0) not in [key for key, _, _ in narrowed.expected]


def test_queues_name_the_offsets_that_must_be_read(filled: StoreDirectory) -> None:
    """The plan says which queue offsets the reading must meet."""
    splits = plan(filled.root)
    rows, _ = read(splits, SELECTIONS["offsets"])
    expected = push_down(splits, SELECTIONS["offsets"]).stores[str(filled.root)].expected
    offsets = {key: range(first, end) for key, first, end in expected}
    assert {(row["topic"], row["queueId"], row["queueOffset"]) for row in rows} == {
        (*key, offset) for key, each in offsets.items() for offset in each
    }


@pytest.mark.parametrize("name", STORES)
def test_stores_of_java_give_the_same_rows(name: str, java_stores: JavaStores, vectors: pathlib.Path) -> None:
    """Of each store of a Java broker, every topic, queue, tag and key gives the same rows with and without."""
    truth = load_truth(vectors, name)
    sizes = tuple(int(truth["settings"].get(key, default)) for key, default in _INDEX_KEYS.items())
    for topic in truth["topics"]:
        messages = [message["properties"] for queue in topic["queues"] for message in queue["messages"]]
        tags = {found for one in messages if (found := one.get("TAGS"))}
        keys = {word for one in messages for word in one.get("KEYS", "").split()}
        wanted = frozenset({topic["topic"]})
        for selection in (
            Selection(wanted, frozenset(sorted(tags)[:1])),
            Selection(wanted, keys=frozenset(sorted(keys)[:2])),
            Selection(wanted, queue_ids=frozenset({0}), from_offset=1, until_offset=5),
        ):
            _, records = check(java_stores[name], selection, 1 << 20, index_sizes=sizes)
            if name == "plain":
                assert records <= len(messages)


_INDEX_KEYS = {"maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000}


def test_killed_store_is_trusted_as_far_as_its_checkpoint_reaches(tmp_path: pathlib.Path) -> None:
    """What was stored long before the checkpoint is read through queues, the rest is walked."""
    directory = StoreDirectory(tmp_path / "store")
    fill(directory, step_ms=2 * MARGIN_MS // 100)
    directory.abort.touch()
    pushed, records = check(directory.root, SELECTIONS["rare topic"])
    assert 40 < records < 120
    assert {split.candidates is None for split in pushed.splits} == {True, False}
    assert not {split.candidates for split in pushed.splits[-3:]} - {None}


def test_queues_of_deleted_log_files_are_believed_from_their_first_entry(tmp_path: pathlib.Path) -> None:
    """When the log has lost its first files, and queues the entries of those, the others lead to their records."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=2048)
    fill(directory)
    for number in range(5):
        directory.segment(number).unlink()
    for queue in (directory.root / "consumequeue").glob("*/*"):
        min(queue.iterdir()).unlink()
    for name in TRIED:
        check(directory.root, SELECTIONS[name], 1 << 20, index_sizes=INDEX_SIZES)
    _, records = check(directory.root, Selection(ORDERS, queue_ids=frozenset({0})))
    assert records < 100


def timed_log(log: LogBuilder, count: int = 60, step_ms: int = 20_000) -> list[int]:
    """Write records into small files, and return their times; some clocks were set back for a while."""
    times: list[int] = []
    for number in range(count):
        log.next_ms = FIRST_MS + number * step_ms - (CLOCK_MS - 5000 if number % 9 == 4 else 0)
        times.append(log.next_ms)
        log.add(b"x" * 400)
    log.save()
    return times


@pytest.mark.parametrize(("first", "stop"), [(10, 20), (None, 15), (40, None), (30, 31), (58, 90), (-30, -20)])
def test_times_leave_out_what_lies_far_outside(log: LogBuilder, first: int | None, stop: int | None) -> None:
    """A range of store times drops the splits before and behind it, but for some that clocks may have misplaced."""
    times = timed_log(log)
    at = [None if number is None else FIRST_MS + number * 20_000 for number in (first, stop)]
    selection = Selection(from_ms=at[0], until_ms=at[1])
    pushed, records = check(log.root, selection)
    inside = [each for each in times if (at[0] or 0) <= each < (at[1] or 1 << 60)]
    assert len(inside) <= records <= len(inside) + 20
    words = [f"{word} {at_ms}" for word, at_ms in zip(("from", "until"), at, strict=True) if at_ms is not None]
    (text,) = pushed.stores[str(log.root)].texts
    assert text.partition(":")[0] == " ".join(["store time", *words])


def stepped_log(log: LogBuilder, files: Sequence[Sequence[int]]) -> None:
    """Write files whose records were stored at these times, in ms after the first."""
    for number, times in enumerate(files):
        if number:
            log.roll()
        for at_ms in times:
            log.next_ms = FIRST_MS + at_ms
            log.add()
    log.save()


def test_split_that_begins_long_before_a_range_is_read(log: LogBuilder) -> None:
    """A range that begins in the middle of a split takes all of it, however long before the split begins."""
    hour_ms = 3_600_000
    stepped_log(log, [(0, 1), (2, hour_ms, hour_ms + 1), (2 * hour_ms,)])
    _, records = check(log.root, Selection(from_ms=FIRST_MS + hour_ms), 1 << 20)
    assert records == 4


@pytest.mark.parametrize(
    ("files", "first", "stop", "most"),
    [
        ([(-900_000,), (-800_000, 0), (-CLOCK_MS, 1), (900_000,)], 0, None, 5),
        ([(-900_000,), (CLOCK_MS - 1, -1), (CLOCK_MS,), (900_000,)], None, 0, 3),
    ],
)
def test_clock_that_was_set_back_loses_no_row(
    log: LogBuilder, files: list[tuple[int, ...]], first: int | None, stop: int | None, most: int
) -> None:
    """What was stored up to a minute out of order is a row at both ends of a range; splits further off are left out."""
    stepped_log(log, files)
    at = [None if at_ms is None else FIRST_MS + at_ms for at_ms in (first, stop)]
    _, records = check(log.root, Selection(from_ms=at[0], until_ms=at[1]), 1 << 20)
    assert records == most


def test_range_of_all_times_drops_nothing(log: LogBuilder) -> None:
    """A range that holds the whole log leaves the splits as they are."""
    times = timed_log(log)
    splits = plan(log.root)
    assert push_down(splits, Selection(from_ms=times[0], until_ms=times[-1] + 1)) == (splits, {})


def test_topics_that_no_store_has_are_refused(filled: StoreDirectory, log: LogBuilder) -> None:
    """A misspelt topic is an error that names the nearest, as long as all stores say which topics they have."""
    splits = plan(filled.root)
    check_topics(splits, ["Orders", "%RETRY%group"])
    with pytest.raises(ConfigError, match=r"no store has a topic Order; did you mean Orders\?"):
        check_topics(splits, ["Order"])
    log.add()
    log.save()
    check_topics([*splits, *plan(log.root)], ["Order"])


def test_topic_that_is_configured_and_empty_is_known(filled: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """A topic without a message is no mistake."""
    root = tmp_path / "store"
    shutil.copytree(filled.root, root)
    configure(root, {"Orders": 3, "Empty": 4})
    check_topics(plan(root), ["Empty"])
    assert looked_at(read(push_down(plan(root), Selection(frozenset({"Empty"}))).splits, Selection())[1])


def test_hole_behind_the_entries_of_a_queue_is_not_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of queues have room for 300,000 entries; thousands of queues that hold few must not cost all of it."""
    directory = StoreDirectory(tmp_path / "store", segment_bytes=65_536, queue_file_bytes=6_000_000)
    fill(directory)
    counts: list[int] = []
    read_file = queuefiles.np.fromfile

    def count(path: str, kind: np.dtype[np.void], entries: int, offset: int = 0) -> Structs:
        counts.append(entries)
        return read_file(path, kind, entries, offset=offset)

    monkeypatch.setattr(queuefiles.np, "fromfile", count)
    check(directory.root, Selection(topics=frozenset({"Orders"})))
    assert 0 < max(counts) < 1_000
