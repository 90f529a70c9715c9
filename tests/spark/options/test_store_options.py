import json
import pathlib

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.export.plan.filesystems import Storage
from rocketlet.export.plan.read_plan import PlanOptions
from rocketlet.export.plan.selection import Selection
from rocketlet.spark.hybrid.read_modes import check_batch, find_mode, reading_options
from rocketlet.spark.options.store_options import SIZE_KEYS, STORE_OPTIONS, StoreOptions, parse_store_options


def parse(options: dict[str, str]) -> StoreOptions:
    """Return what a reading of stores is asked for."""
    given = reading_options(options)
    check_batch(given, find_mode(given))
    return parse_store_options(given)


def test_all_options_are_understood() -> None:
    """Names are read in any case, as Spark hands them over in lower case."""
    options = {
        "PATH": "/a",
        "topics": " A, B ,,",
        "startingtimestamp": "1000",
        "endingTimestamp": "1970-01-01T00:00:02Z",
        "includesystemtopics": "True",
        "verifyBodyCrc": "false",
        "onDamage": "Prefix",
        "splitBytes": "1m",
        "tags": "t",
        "keys": "k,l",
        "useQueues": "false",
        "reportPath": "/r",
        "storageOptions": '{"region": "r"}',
        "mappedfilesizecommitlog": "65536",
        "maxHashSlotNum": "50",
        "maxIndexNum": "100",
    }
    words = frozenset({"A", "B"}), frozenset({"t"}), frozenset({"k", "l"})
    assert parse(options) == StoreOptions(
        ("/a",),
        Selection(*words, from_ms=1000, until_ms=2000, includes_system=True),
        PlanOptions(65_536, 1 << 20, storage=Storage('{"region": "r"}')),
        on_damage="prefix",
        verifies_crc=False,
        uses_queues=False,
        index_sizes=(50, 100),
        report_path="/r",
    )


def test_defaults_read_the_whole_store() -> None:
    """Only a path is needed."""
    assert parse({"path": "/a"}) == StoreOptions(("/a",))
    assert parse({"path": "/a", "onDamage": "skip"}).planning.skips_damage


@pytest.mark.parametrize(
    ("options", "stores"),
    [
        ({"path": "s3://bucket/a"}, ("s3://bucket/a",)),
        ({"paths": json.dumps(["/a", "file:///b,c"])}, ("/a", "file:///b,c")),
        ({"path": "/a, /b,"}, ("/a", "/b")),
    ],
)
def test_stores_are_named_in_several_ways(options: dict[str, str], stores: tuple[str, ...]) -> None:
    """One path, a list as Spark encodes it, a list in one text, and URLs."""
    assert parse(options).stores == stores


def test_existing_directory_with_a_comma_is_one_store(tmp_path: pathlib.Path) -> None:
    """A comma separates paths only where no directory has the whole name."""
    (tmp_path / "a,b").mkdir()
    for path in (f"{tmp_path}/a,b", f"file://{tmp_path}/a,b", f"{tmp_path}/*,b"):
        assert parse({"path": path}).stores == (path,)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "no store is named"),
        ({"path": " "}, "no store is named"),
        ({"paths": "7"}, "paths is no JSON list of stores"),
        ({"path": "/a", "storageOptions": "{"}, "storageOptions is not JSON"),
        ({"path": "/a", "onDamage": "ignore"}, "'ignore', none of fail, skip, prefix"),
        ({"path": "/a", "subscribe": "T"}, "subscribe does not fit: it is no option of a batch that reads stores"),
        ({"path": "/a", "topic": "A"}, "no option topic; did you mean topics?"),
        ({"path": "/a", "startingtime": "1"}, "did you mean startingTimestamp?"),
        ({"path": "/a", "includeSystemTopics": "yes"}, "'yes', neither true nor false"),
        ({"path": "/a", "startingTimestamp": "soon"}, "startingTimestamp is 'soon'"),
        ({"path": "/a", "startingTimestamp": "5", "endingTimestamp": "5"}, "5 is not before endingTimestamp 5"),
        ({"path": "/a", "mappedFileSizeCommitLog": "1X"}, "'1X', not a positive size"),
        ({"path": "/a", "maxHashSlotNum": "0"}, "maxHashSlotNum is '0'"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, str], sentence: str) -> None:
    """The error is one sentence that names the option."""
    with pytest.raises(ConfigError) as caught:
        parse(options)
    assert sentence in str(caught.value)
    assert caught.value.key in (*STORE_OPTIONS, *options)


def test_size_keys_are_options() -> None:
    """Every size that a store can be written with may be given."""
    assert set(SIZE_KEYS) < set(STORE_OPTIONS)
