"""``rocketlet export``: the messages of stores as files, and the proof that none is missing."""

import os
from typing import TYPE_CHECKING, Any, Final, Unpack

import click

from ..common.errors import ConfigError
from .progress import show_progress
from .reading import PREFIX, ReadingFlags, make_read_options, needs_extra, plan_reading, reading_options, tell
from .verify import verify

if TYPE_CHECKING:
    import pyarrow as pa

    from ..export.report.report import Report

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


class ExportGroup(click.Group):
    """``export STORE… --to PATH`` itself, and commands beside it, which only the first word calls."""

    allow_extra_args = False
    allow_interspersed_args = True

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command that the first word names, or of the export."""
        command = self.commands.get(args[0]) if args else None
        if command is None:
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    parse_args = click.Command.parse_args
    invoke = click.Command.invoke
    collect_usage_pieces = click.Command.collect_usage_pieces


@click.group(cls=ExportGroup, commands=[verify], short_help="Write the messages of stores to files.")
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
        report = _run(flags)
    tell(ctx, flags, report, "exported")


def _run(flags: ExportFlags) -> "Report":
    from ..export.plan.plan import SPLIT_BYTES
    from ..export.write.parallel import export_directory, export_file
    from ..export.write.pieces import ExportJob
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
    from ..export.write.parallel import find_parts
    from ..export.write.write import format_of

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
