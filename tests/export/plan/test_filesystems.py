"""Stores that are named by patterns and URLs, on an S3 server and on file systems of fsspec."""

import pathlib
from collections.abc import Iterator

import fsspec
import pytest
from javastores import Row
from logbuilder import LogBuilder
from s3 import serve_s3

from rocketlet.common.errors import ConfigError, StoreError
from rocketlet.export.plan import log_file as remote
from rocketlet.export.plan.filesystems import Storage, expand_places
from rocketlet.export.plan.read_plan import Plan, PlanOptions, plan_prefixes, plan_stores
from rocketlet.export.write.log_reader import LogReader


def fill(log: LogBuilder, count: int = 60) -> LogBuilder:
    """Write a log of several files with records of several sizes."""
    for number in range(count):
        log.add(b"body %d" % number * (number % 7 + 1), properties={"KEYS": f"k{number}"}, queue_id=number % 3)
    log.save()
    return log


def rows_of(plan: Plan) -> list[Row]:
    """Read a plan."""
    reading = LogReader(plan.splits, damages=plan.damages, ends=plan.ends)
    rows = [row for batch in reading for row in batch.to_pylist()]
    assert not reading.report.faults()
    return rows


@pytest.fixture
def s3(tmp_path: pathlib.Path) -> Iterator[Storage]:
    """Serve the folders of the test as buckets."""
    with serve_s3(tmp_path) as storage:
        yield storage


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_store_on_s3_gives_the_rows_of_the_local_one(
    scheme: str, tmp_path: pathlib.Path, s3: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows smaller than a file, split anywhere, give the same rows, end and marks."""
    monkeypatch.setattr(remote, "WINDOW_BYTES", 700)
    log = fill(LogBuilder(tmp_path / "bucket" / "store"))
    local = rows_of(plan_prefixes([str(log.root)]))
    plan = plan_prefixes([f"{scheme}://bucket/store"], PlanOptions(split_bytes=1500, storage=s3))
    assert [row["logOffset"] for row in local] == log.offsets
    assert rows_of(plan) == local
    (end,) = plan.ends.values()
    assert (end.path, end.position) == (
        f"{scheme}://bucket/store/commitlog/{log.files()[-1].name}",
        log.end - int(log.files()[-1].name),
    )


def test_patterns_on_s3_name_the_stores_that_fit(tmp_path: pathlib.Path, s3: Storage) -> None:
    """A pattern may stand in any part of the path; nothing that fits is an error."""
    for name in ("a-1", "a-2", "b-1"):
        fill(LogBuilder(tmp_path / "bucket" / name / "store"), 3)
    found = expand_places(["s3://bucket/a-*/store"], s3)
    assert found == ["s3://bucket/a-1/store", "s3://bucket/a-2/store"]
    with pytest.raises(ConfigError, match=r"no store matches s3://bucket/c-\*"):
        plan_stores(["s3://bucket/c-*"], PlanOptions(storage=s3))


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("s3://bucket/nothing", "s3://bucket/nothing is not a store: it does not exist"),
        ("s3://bucket/other", "s3://bucket/other is not a store: it has no directory commitlog"),
    ],
)
def test_what_is_no_store_on_s3_is_one_sentence(place: str, sentence: str, tmp_path: pathlib.Path, s3: Storage) -> None:
    """A place without a log is told as a local one is."""
    (tmp_path / "bucket" / "other").mkdir(parents=True)
    (tmp_path / "bucket" / "other" / "file").touch()
    with pytest.raises(ConfigError, match=sentence):
        plan_stores([place], PlanOptions(storage=s3))


def test_file_that_goes_away_on_s3_is_one_sentence(tmp_path: pathlib.Path, s3: Storage) -> None:
    """A file that is deleted between plan and reading is an error that names its URL."""
    log = fill(LogBuilder(tmp_path / "bucket" / "store"))
    first, *_ = plan_stores(["s3://bucket/store"], PlanOptions(storage=s3))
    log.files()[0].unlink()
    with pytest.raises(StoreError, match=r"s3://bucket/store/commitlog/0{20} cannot be read"):
        first.open()


def test_store_of_fsspec_is_read(log: LogBuilder) -> None:
    """A file system that only fsspec knows gives the same rows."""
    fill(log)
    fsspec.filesystem("memory").put(str(log.root), "/places/store", recursive=True)
    rows = rows_of(plan_prefixes(["memory://places/store"], PlanOptions(split_bytes=1000)))
    assert [row["logOffset"] for row in rows] == log.offsets


def test_local_patterns_and_file_urls(tmp_path: pathlib.Path) -> None:
    """A pattern names all stores that fit, in order; a file: URL is a path; a name with marks is no pattern."""
    for name in ("b", "a", "[c]"):
        fill(LogBuilder(tmp_path / name), 3)
    places = [str(tmp_path / "[c]"), f"file://{tmp_path}/a", f"{tmp_path}/[ab]"]
    assert expand_places(places, Storage()) == [str(tmp_path / name) for name in ("[c]", "a", "a", "b")]
    with pytest.raises(ConfigError, match="no store matches"):
        plan_stores([f"{tmp_path}/x*"])


@pytest.mark.parametrize(
    ("options", "place", "sentence"),
    [
        ("[]", "s3://bucket/store", "storageOptions is '\\[\\]', not a JSON object"),
        ('{"acces_key": "a"}', "s3://bucket/store", "cannot be reached: .*acces_key"),
        ("{}", "nothing-knows-it://bucket/store", "cannot be reached: Protocol not known"),
    ],
)
def test_wrong_options_of_places_are_one_sentence(options: str, place: str, sentence: str) -> None:
    """What the file system does not accept is said before anything is read."""
    with pytest.raises(ConfigError, match=sentence) as caught:
        plan_stores([place], PlanOptions(storage=Storage(options)))
    assert caught.value.key == "storageOptions"
