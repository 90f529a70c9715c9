"""``rocketlet export`` and ``dump`` write the messages of stores to files; ``export verify`` checks such files.

export PATH… --to FILE            Parquet, Arrow IPC or JSON lines, by several processes
export verify REPORT PATH…        the files of an export, held against its report
dump PATH… --to FILE              a stream of msgpack values with all that the log knows, for ``rocketlet load``
"""

import os
from typing import TYPE_CHECKING, Final, Unpack

import click

from ..common.errors import ConfigError
from .lazy_group import FirstWordGroup
from .reading import PREFIX, ReadingFlags, make_read_options, needs_extra, plan_reading, reading_options, tell
from .verbs.progress import show_progress

if TYPE_CHECKING:
    import pyarrow as pa

    from ..export.report.report import Report
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..export.report.report import Report

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ..export.write.verify import ExportedRows

_FORMATS: Final = ("parquet", "arrow", "jsonl")


class ExportFlags(ReadingFlags):
    """The arguments of ``export``."""

    to: str
    columns: str | None
    kind: str | None
    delay_levels: str | None
    jobs: int | None
    split_bytes: int | None
    overwrites: bool


class VerifyFlags(TypedDict):
    """The arguments of ``export verify``."""

    report: str
    paths: tuple[str, ...]
    skips_crc: bool
    storage: str | None
    quiet: bool


@click.command(short_help="Compare exported files with the report of their export.")
@click.argument("report")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--no-crc", "skips_crc", is_flag=True, help="Do not verify the checksums of bodies.")
@click.option("--storage-options", "storage", metavar="JSON", help="Arguments of the file system of URLs.")
@click.option("--quiet", is_flag=True, help="Do not print the report.")
@click.pass_context
def verify(ctx: click.Context, **flags: Unpack[VerifyFlags]) -> None:
    """Compare files with the report of the export that wrote them, queue by queue.

    REPORT is the file of "rocketlet export --report", or the directory of Spark's option reportPath. PATH are Parquet,
    Arrow or JSON lines files, or directories of them, partitioned by topic or anything else. Exit code 1 means a
    difference; there is one line for each.
    """
    with needs_extra("verify"):
        from ..export.plan.filesystems import Storage
        from ..export.report.report import load_report
        from ..export.write.verify import compare, find_outputs, read_outputs
    storage = Storage(flags["storage"] or "{}")
    report = load_report(flags["report"], storage)
    found = read_outputs(find_outputs(flags["paths"], storage), checks_bodies=not flags["skips_crc"])
    if not flags["quiet"]:
        for line in report.lines():
            click.echo(line)
    differences = list(compare(report, found))
    for line in differences:
        click.echo(f"difference: {line}")
    if differences:
        ctx.exit(1)
    click.echo(_summary(found))


def _summary(found: "ExportedRows") -> str:
    bodies = f", {found.checked_bodies} bodies have their checksums" if found.checked_bodies else ""
    return f"verified: {found.rows} rows of {len(found.queues)} queues in {found.files} files{bodies}"


@click.group(
    cls=FirstWordGroup, places={"verify": ".export:verify"}, short_help="Write the messages of stores to files."
)
@click.option("--to", metavar="PATH", required=True, help="File to write; or a directory, ending in /.")
@reading_options
@click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas.")
@click.option("--format", "kind", type=click.Choice(_FORMATS), help="[default: by the suffix; parquet]")
@click.option("--delay-levels", metavar="LEVELS", help="The broker's messageDelayLevel, for dueTimestamp.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="Processes at most.  [default: cores]")
@click.option("--split-bytes", type=click.IntRange(min=1), help="Bytes of log per part.  [default: 128 MiB]")
@click.option("--overwrite", "overwrites", is_flag=True, help="Replace what exists.")
@click.pass_context
def export(ctx: click.Context, **flags: Unpack[ExportFlags]) -> None:
    """Write the messages of one or more stores to Parquet, Arrow or JSON lines.

    Stores are directories, patterns, or URLs such as s3://bucket/store. Rows are in log order. A directory gets one
    file for each part of the log, written by all processes; a single file is encoded by one.

    Times are epoch milliseconds or ISO 8601, in UTC where they name no zone. A broker may be writing to a store: what
    it had written when the export began is exported. Exit code 1 means damage, or a report that proves the export
    incomplete.

    "rocketlet export verify" compares files with the report.
    """
    with needs_extra("export"):
        report = _export(flags)
    tell(ctx, flags, report, "exported")


def _export(flags: ExportFlags) -> "Report":
    from ..export.plan.read_plan import SPLIT_BYTES
    from ..export.write.export_job import ExportJob, export_directory, export_file
    from ..store.files.store_config import DEFAULT_DELAY_LEVELS, parse_delay_levels

    target, kind, old = _target(flags)
    delays_ms = parse_delay_levels(flags["delay_levels"] or DEFAULT_DELAY_LEVELS)
    options = make_read_options(flags, _schema(flags), delays_ms)
    splits, report = plan_reading(flags, options, flags["split_bytes"])
    # No more processes than there are whole splits, since each takes a moment to start.
    useful = max(1, sum(map(len, splits)) // (flags["split_bytes"] or SPLIT_BYTES))
    jobs = min(flags["jobs"] or os.cpu_count() or 1, useful)
    job = ExportJob(splits, options, kind, jobs, stops_at_damage=flags["on_damage"] == PREFIX)
    for path in old:
        os.unlink(path)
    write = export_directory if _is_directory(target) else export_file
    with show_progress(job.size_bytes, "exporting", "exported") as advance:
        write(job, target, report, advance)
    return report


def _target(flags: ExportFlags) -> tuple[str, str, list[str]]:
    """Return where to write, the format, and the files of an earlier export to the same directory."""
    from ..export.write.export_job import find_parts
    from ..export.write.writers import format_of

    target = flags["to"]
    if not _is_directory(target):
        kind = flags["kind"] or format_of(target)
        if os.path.exists(target) and not flags["overwrites"]:
            raise ConfigError(f"{target} exists; --overwrite replaces it")
        return target, kind, []
    old = find_parts(target)
    if old and not flags["overwrites"]:
        raise ConfigError(f"{target} holds the parts of another export; --overwrite replaces them")
    return target, flags["kind"] or "parquet", old


def _is_directory(target: str) -> bool:
    return target.endswith("/") or os.path.isdir(target)


def _schema(flags: ExportFlags) -> "pa.Schema":
    from ..export.columns.schema import FULL_SCHEMA, SCHEMA, pick_columns

    if flags["columns"] is None:
        return FULL_SCHEMA if flags["includes_system"] else SCHEMA
    schema = pick_columns(filter(None, (name.strip() for name in flags["columns"].split(","))))
    if not len(schema):
        raise ConfigError("--columns names no column")
    return schema


class DumpFlags(ReadingFlags):
    """The arguments of ``dump``."""

    to: str
    overwrites: bool


@click.command(short_help="Write the messages of stores to a dump file.")
@click.option("--to", metavar="PATH", required=True, help="File to write.")
@reading_options
@click.option("--overwrite", "overwrites", is_flag=True, help="Replace the file if it exists.")
@click.pass_context
def dump(ctx: click.Context, **flags: Unpack[DumpFlags]) -> None:
    """Write the messages of one or more stores to a dump file, with all that the log knows of them.

    Stores, filters, and what is read of a store that is damaged or written to, are those of "rocketlet export". Exit
    code 1 means damage, or a report that proves the dump incomplete.
    """
    with needs_extra("dump"):
        report = _dump(flags)
    tell(ctx, flags, report, "dumped")


def _dump(flags: DumpFlags) -> "Report":
    from ..export.write.dump_file import COLUMNS
    from ..export.write.export_job import ExportJob, export_file

    if os.path.exists(flags["to"]) and not flags["overwrites"]:
        raise ConfigError(f"{flags['to']} exists; --overwrite replaces it")
    options = make_read_options(flags, COLUMNS)
    splits, report = plan_reading(flags, options)
    job = ExportJob(splits, options, "dump", stops_at_damage=flags["on_damage"] == PREFIX)
    with show_progress(job.size_bytes, "dumping", "dumped") as advance:
        export_file(job, flags["to"], report, advance)
    return report
