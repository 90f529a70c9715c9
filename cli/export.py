"""``rocketlet export``: the messages of stores as files, and the proof that none is missing."""

import difflib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import click

from ..common.errors import ConfigError
from .progress import show_progress
from .verify import verify

if TYPE_CHECKING:
    from ..export.pieces import ExportJob
    from ..export.plan import Plan, PlanOptions
    from ..export.read import ReadOptions
    from ..export.report import Report
    from ..export.selection import Selection

FAIL, SKIP, PREFIX = DAMAGE_WORDS = ("fail", "skip", "prefix")
_FORMATS: Final = ("parquet", "arrow", "jsonl")


class ExportFlags(TypedDict):
    """The arguments of ``export``."""

    stores: tuple[str, ...]
    to: str
    topics: tuple[str, ...]
    queue_ids: tuple[int, ...]
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    starting: str | None
    ending: str | None
    columns: str | None
    kind: str | None
    includes_system: bool
    delay_levels: str | None
    pushes_down: bool
    on_damage: str
    skips_crc: bool
    jobs: int | None
    split_bytes: int | None
    segment_bytes: int | None
    storage: str | None
    overwrites: bool
    report_path: str | None


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
@click.argument("stores", metavar="STORE...", nargs=-1, required=True)
@click.option("--to", metavar="PATH", required=True, help="File to write; or a directory, ending in /.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; repeatable.")
@click.option("--queue", "queue_ids", metavar="ID", type=int, multiple=True, help="Only this queue; repeatable.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only messages with this tag; repeatable.")
@click.option("--key", "keys", metavar="KEY", multiple=True, help="Only messages with this key; repeatable.")
@click.option("--from", "starting", metavar="TIME", help="Only messages stored at this time or later.")
@click.option("--until", "ending", metavar="TIME", help="Only messages stored before this time.")
@click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas.")
@click.option("--format", "kind", type=click.Choice(_FORMATS), help="[default: by the suffix; parquet]")
@click.option("--include-system-topics", "includes_system", is_flag=True, help="And system, retry and DLQ topics.")
@click.option("--delay-levels", metavar="LEVELS", help="The broker's messageDelayLevel, for dueTimestamp.")
@click.option("--push-down", "pushes_down", is_flag=True, help="Read no more than queues and index say is wanted.")
@click.option(
    "--on-damage",
    type=click.Choice(DAMAGE_WORDS),
    default=PREFIX,
    show_default=True,
    help="Of a damaged store: nothing, all but the damage, or what is before it.",
)
@click.option("--no-crc", "skips_crc", is_flag=True, help="Do not verify the checksums of bodies.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="Processes at most.  [default: cores]")
@click.option("--split-bytes", type=click.IntRange(min=1), help="Bytes of log per part.  [default: 128 MiB]")
@click.option("--segment-bytes", type=click.IntRange(min=1), help="Size of the log's files.  [default: as found]")
@click.option("--storage-options", "storage", metavar="JSON", help="Arguments of the file system of URLs.")
@click.option("--overwrite", "overwrites", is_flag=True, help="Replace what exists.")
@click.option("--report", "report_path", metavar="PATH", help="Write the report as JSON, too.")
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
    report = _run(flags)
    for tally in report.stores:
        if tally.damage is not None:
            click.echo(f"rocketlet: {tally.store} is exported up to damage only: {tally.damage}", err=True)
    for line in report.lines():
        click.echo(line)
    _warn_of_absent(flags["topics"], report)
    if report.faults():
        ctx.exit(1)


def _run(flags: ExportFlags) -> "Report":
    try:
        from ..export.parallel import export_directory, export_file
        from ..export.plan import plan_prefixes
        from ..export.planreport import planned_report
        from ..export.pushdown import Pushed, PushOptions, push_down
        from ..export.reportparts import save_report
    except ModuleNotFoundError as error:
        raise ConfigError(f"export needs {error.name}: pip install 'rocketlet[export]'") from error
    target, kind, old = _target(flags)
    selection = _selection(flags)
    plan = plan_prefixes(flags["stores"], _plan_options(flags))
    _refuse_damage(plan, flags["on_damage"])
    pushed = push_down(plan.splits, selection, PushOptions()) if flags["pushes_down"] else Pushed(plan.splits, {})
    options = _read_options(flags, selection)
    report = planned_report(plan, pushed.stores, _named_filters(flags), checks_crc=options.limits.checks_crc)
    job = _job(flags, pushed.splits, options, kind)
    for path in old:
        os.unlink(path)
    write = export_directory if _is_directory(target) else export_file
    with show_progress(job.size_bytes, "exporting", "exported") as advance:
        write(job, target, report, advance)
    if flags["report_path"] is not None:
        save_report(report, flags["report_path"])
    return report


def _target(flags: ExportFlags) -> tuple[str, str, list[str]]:
    """Return where to write, the format, and the files of an earlier export to the same directory."""
    from ..export.parallel import find_parts
    from ..export.write import format_of

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


def _plan_options(flags: ExportFlags) -> "PlanOptions":
    from ..export.places import Storage
    from ..export.plan import SPLIT_BYTES, PlanOptions

    return PlanOptions(
        segment_bytes=flags["segment_bytes"],
        split_bytes=flags["split_bytes"] or SPLIT_BYTES,
        skips_damage=flags["on_damage"] == SKIP,
        storage=Storage(flags["storage"] or "{}"),
    )


def _selection(flags: ExportFlags) -> "Selection":
    from ..export.instant import parse_instant
    from ..export.selection import Selection

    starting, ending = flags["starting"], flags["ending"]
    return Selection(
        topics=frozenset(flags["topics"]),
        tags=frozenset(flags["tags"]),
        keys=frozenset(flags["keys"]),
        from_ms=None if starting is None else parse_instant(starting, "--from"),
        until_ms=None if ending is None else parse_instant(ending, "--until"),
        includes_system=flags["includes_system"],
        queue_ids=frozenset(flags["queue_ids"]) or None,
    )


def _read_options(flags: ExportFlags, selection: "Selection") -> "ReadOptions":
    from ..export.read import ReadOptions
    from ..export.schema import FULL_SCHEMA, SCHEMA, pick_columns
    from ..store.blockscan import ScanLimits
    from ..store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels

    schema = FULL_SCHEMA if flags["includes_system"] else SCHEMA
    if flags["columns"] is not None:
        schema = pick_columns(filter(None, (name.strip() for name in flags["columns"].split(","))))
    if not len(schema):
        raise ConfigError("--columns names no column")
    limits = ScanLimits(checks_crc=not flags["skips_crc"])
    delays_ms = parse_delay_levels(flags["delay_levels"] or DEFAULT_DELAY_LEVELS)
    return ReadOptions(selection, schema, limits, flags["on_damage"] == SKIP, delays_ms)


def _job(flags: ExportFlags, splits: "Sequence[Any]", options: "ReadOptions", kind: str) -> "ExportJob":
    """Return what to do, by no more processes than there are whole splits, since each takes a moment to start."""
    from ..export.pieces import ExportJob
    from ..export.plan import SPLIT_BYTES

    size_bytes = sum(map(len, splits))
    useful = max(1, size_bytes // (flags["split_bytes"] or SPLIT_BYTES))
    jobs = min(flags["jobs"] or os.cpu_count() or 1, useful)
    return ExportJob(splits, options, kind, jobs, stops_at_damage=flags["on_damage"] == PREFIX)


def _refuse_damage(plan: "Plan", on_damage: str) -> None:
    if on_damage == FAIL:
        for damage in plan.damages.values():
            raise damage


def _named_filters(flags: ExportFlags) -> list[str]:
    """Return the filters as they were given, for the report."""
    given: dict[str, Sequence[object]] = {
        "--topic": flags["topics"],
        "--queue": flags["queue_ids"],
        "--tag": flags["tags"],
        "--key": flags["keys"],
        "--from": [flags["starting"] or ""],
        "--until": [flags["ending"] or ""],
    }
    return [f"{option} {value}" for option, values in given.items() for value in values if value != ""]


def _warn_of_absent(topics: tuple[str, ...], report: "Report") -> None:
    """Name the topics that were asked for and are not in the log; they may be misspelt."""
    known = sorted({topic for tally in report.stores for topic, _ in tally.queues})
    for topic in topics:
        if topic not in known:
            nearest = difflib.get_close_matches(topic, known, n=1)
            hint = f"; there is {nearest[0]}" if nearest else ""
            click.echo(f"rocketlet: no message of topic {topic} is in the log{hint}", err=True)
