import json
import pathlib

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.export.selection import Selection
from rocketlet.spark.options import NAMES, SIZE_KEYS, SourceOptions, parse_options


def test_all_options_are_understood() -> None:
    """Names are read in any case, as Spark hands them over in lower case."""
    options = {
        "PATH": "/a",
        "topics": " A, B ,,",
        "startingtimestamp": "1000",
        "endingTimestamp": "1970-01-01T00:00:02Z",
        "includesystemtopics": "True",
        "verifyBodyCrc": "false",
        "readUpToDamage": "true",
        "mappedfilesizecommitlog": "65536",
        "maxIndexNum": "100",
    }
    selection = Selection(frozenset({"A", "B"}), from_ms=1000, until_ms=2000, includes_system=True)
    assert parse_options(options) == SourceOptions(("/a",), selection, False, 65_536, True)


def test_defaults_read_the_whole_store() -> None:
    """Only a path is needed."""
    assert parse_options({"path": "/a"}) == SourceOptions(("/a",), Selection(), True, None)


@pytest.mark.parametrize(
    ("options", "stores"),
    [
        ({"path": "file:///a/b"}, ("/a/b",)),
        ({"path": "file:/a/b"}, ("/a/b",)),
        ({"paths": json.dumps(["/a", "file:///b,c"])}, ("/a", "/b,c")),
        ({"path": "/a, /b,"}, ("/a", "/b")),
    ],
)
def test_stores_are_named_in_several_ways(options: dict[str, str], stores: tuple[str, ...]) -> None:
    """One path, a list as Spark encodes it, a list in one text, and file URLs."""
    assert parse_options(options).stores == stores


def test_existing_directory_with_a_comma_is_one_store(tmp_path: pathlib.Path) -> None:
    """A comma separates paths only where no directory has the whole name."""
    (tmp_path / "a,b").mkdir()
    assert parse_options({"path": f"{tmp_path}/a,b"}).stores == (f"{tmp_path}/a,b",)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "no store is named"),
        ({"path": " "}, "no store is named"),
        ({"path": "s3://bucket/store"}, "not a local path"),
        ({"path": "/a", "topic": "A"}, "no option topic; did you mean topics?"),
        ({"path": "/a", "startingtime": "1"}, "did you mean startingTimestamp?"),
        ({"path": "/a", "includeSystemTopics": "yes"}, "'yes', neither true nor false"),
        ({"path": "/a", "startingTimestamp": "soon"}, "startingTimestamp is 'soon'"),
        ({"path": "/a", "startingTimestamp": "5", "endingTimestamp": "5"}, "5 is not before endingTimestamp 5"),
        ({"path": "/a", "mappedFileSizeCommitLog": "1G"}, "'1G', not a positive number"),
        ({"path": "/a", "maxHashSlotNum": "0"}, "maxHashSlotNum is '0'"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, str], sentence: str) -> None:
    """The error is one sentence that names the option."""
    with pytest.raises(ConfigError) as caught:
        parse_options(options)
    assert sentence in str(caught.value)
    assert caught.value.key in (*NAMES, *options)


def test_size_keys_are_options() -> None:
    """Every size that a store can be written with may be given."""
    assert set(SIZE_KEYS) < set(NAMES)
