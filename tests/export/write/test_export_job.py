"""Exports by several processes, to one file and to directories."""

import pathlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from logbuilder import LogBuilder

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.export.plan.filesystems import Storage
from rocketlet.export.plan.read_plan import PlanOptions, plan_prefixes
from rocketlet.export.pushdown.pushdown import planned_report
from rocketlet.export.report.report import Report
from rocketlet.export.write.export_job import ExportJob, export_directory, export_file, find_parts
from rocketlet.export.write.log_reader import ReadOptions
from rocketlet.export.write.verify import compare, find_outputs, read_outputs

Export = Callable[..., Report]


@pytest.fixture
def filled(log: LogBuilder) -> LogBuilder:
    """Return a log of several files and queues."""
    for number in range(120):
        log.add(b"body %d" % number, queue_id=number % 3)
    log.save()
    return log


@pytest.fixture
def export(filled: LogBuilder, tmp_path: pathlib.Path) -> Export:
    """Return a function that exports the log in small parts."""

    def run(target: str, kind: str = "parquet", jobs: int = 1, *, stops_at_damage: bool = True) -> Report:
        plan = plan_prefixes([str(filled.root)], PlanOptions(split_bytes=1500))
        report = planned_report(plan, {})
        job = ExportJob(plan.splits, ReadOptions(), kind, jobs, stops_at_damage)
        write = export_directory if target.endswith("/") else export_file
        read: list[int] = []
        write(job, str(tmp_path / target), report, read.append)
        assert sum(read) == job.size_bytes or report.faults()
        return report

    return run


def rows(*places: pathlib.Path) -> list[tuple[str, int, int]]:
    """Return topic, queue and offset of the rows of files, in the order of their names."""
    batches = [
        batch for output in find_outputs(map(str, places), Storage()) for batch in output.batches(with_bodies=False)
    ]
    table = pa.Table.from_batches(batches).to_pylist()
    return [(row["topic"], row["queueId"], row["queueOffset"]) for row in table]


ALL = [("Topic", number % 3, number // 3) for number in range(120)]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_directory_holds_all_rows_in_order(export: Export, tmp_path: pathlib.Path, kind: str) -> None:
    """The files of a directory, by their names, have the rows in log order; nothing else is left beside them."""
    report = export("out/", kind)
    assert report.faults() == []
    assert rows(tmp_path / "out") == ALL
    assert all(path.name.startswith("part-") for path in (tmp_path / "out").iterdir())
    found = read_outputs(find_outputs([str(tmp_path / "out")], Storage()))
    assert (found.files > 5, list(compare(report, found))) == (True, [])
    assert find_parts(str(tmp_path / "out")) == sorted(map(str, (tmp_path / "out").iterdir()))


def test_processes_write_what_one_does(export: Export, tmp_path: pathlib.Path) -> None:
    """Two processes give the rows of one, in the same order, and the same counts."""
    reports = [export("one.arrow", "arrow"), export("two.arrow", "arrow", 2)]
    assert rows(tmp_path / "one.arrow") == rows(tmp_path / "two.arrow") == ALL
    for report in reports:
        report.stores[0].seconds = 0
    assert reports[0].to_json() == reports[1].to_json()
    assert {path.name for path in tmp_path.iterdir()} >= {"one.arrow", "two.arrow"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("target", ["out/", "out.parquet"])
def test_parts_behind_damage_are_dropped(
    export: Export, filled: LogBuilder, tmp_path: pathlib.Path, target: str
) -> None:
    """A store ends at damage, whatever was read behind it; the report says where."""
    path = filled.files()[1]
    path.write_bytes(path.read_bytes().replace(b"body 4", b"bodY 4", 1))
    report = export(target)
    damage = report.stores[0].damage
    assert damage is not None
    assert damage.path == str(path)
    found = rows(tmp_path / target)
    assert found == ALL[: len(found)]
    assert 0 < len(found) == report.rows < 60


@pytest.mark.parametrize("target", ["out/", "out.parquet"])
def test_failed_export_leaves_nothing(export: Export, filled: LogBuilder, tmp_path: pathlib.Path, target: str) -> None:
    """Where damage is an error, no file of the export is left."""
    path = filled.files()[1]
    path.write_bytes(path.read_bytes().replace(b"body 4", b"bodY 4", 1))
    with pytest.raises(StoreDamagedError):
        export(target, stops_at_damage=False)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and filled.root not in path.parents] == []


def test_target_that_cannot_be_made_is_one_sentence(export: Export, tmp_path: pathlib.Path) -> None:
    """A directory below a file cannot be made."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written: Not a directory"):
        export("file/out/")
