"""``rocketlet dump``: the messages of stores as a stream of msgpack values, for ``rocketlet load``."""

import os
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from ..common.errors import ConfigError
from .progress import show_progress

if TYPE_CHECKING:
    from ..export.plan import Plan, PlanOptions
    from ..export.read import ReadOptions
    from ..export.report import Report

FAIL, SKIP, PREFIX = DAMAGE_WORDS = ("fail", "skip", "prefix")


class DumpFlags(TypedDict):
    """The arguments of ``dump``."""

    stores: tuple[str, ...]
    to: str
    topics: tuple[str, ...]
    queue_ids: tuple[int, ...]
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    starting: str | None
    ending: str | None
    includes_system: bool
    on_damage: str
    skips_crc: bool
    segment_bytes: int | None
    storage: str | None
    overwrites: bool
    report_path: str | None


@click.command(short_help="Write the messages of stores to a dump file.")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True)
@click.option("--to", metavar="PATH", required=True, help="File to write.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; repeatable.")
@click.option("--queue", "queue_ids", metavar="ID", type=int, multiple=True, help="Only this queue; repeatable.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only messages with this tag; repeatable.")
@click.option("--key", "keys", metavar="KEY", multiple=True, help="Only messages with this key; repeatable.")
@click.option("--from", "starting", metavar="TIME", help="Only messages stored at this time or later.")
@click.option("--until", "ending", metavar="TIME", help="Only messages stored before this time.")
@click.option("--include-system-topics", "includes_system", is_flag=True, help="And system, retry and DLQ topics.")
@click.option(
    "--on-damage",
    type=click.Choice(DAMAGE_WORDS),
    default=PREFIX,
    show_default=True,
    help="Of a damaged store: nothing, all but the damage, or what is before it.",
)
@click.option("--no-crc", "skips_crc", is_flag=True, help="Do not verify the checksums of bodies.")
@click.option("--segment-bytes", type=click.IntRange(min=1), help="Size of the log's files.  [default: as found]")
@click.option("--storage-options", "storage", metavar="JSON", help="Arguments of the file system of URLs.")
@click.option("--overwrite", "overwrites", is_flag=True, help="Replace the file if it exists.")
@click.option("--report", "report_path", metavar="PATH", help="Write the report as JSON, too.")
@click.pass_context
def dump(ctx: click.Context, **flags: Unpack[DumpFlags]) -> None:
    """Write the messages of one or more stores to a dump file, with all that the log knows of them.

    Stores, filters, and what is read of a store that is damaged or written to, are those of "rocketlet export". Exit
    code 1 means damage, or a report that proves the dump incomplete.
    """
    report = _run(flags)
    for tally in report.stores:
        if tally.damage is not None:
            click.echo(f"rocketlet: {tally.store} is dumped up to damage only: {tally.damage}", err=True)
    for line in report.lines():
        click.echo(line)
    if report.faults():
        ctx.exit(1)


def _run(flags: DumpFlags) -> "Report":
    try:
        from ..export.parallel import ExportJob, export_file
        from ..export.plan import plan_prefixes
        from ..export.planreport import planned_report
        from ..export.reportparts import save_report
    except ModuleNotFoundError as error:
        raise ConfigError(f"dump needs {error.name}: pip install 'rocketlet[export]'") from error
    if os.path.exists(flags["to"]) and not flags["overwrites"]:
        raise ConfigError(f"{flags['to']} exists; --overwrite replaces it")
    options = _read_options(flags)
    plan = plan_prefixes(flags["stores"], _plan_options(flags))
    _refuse_damage(plan, flags["on_damage"])
    report = planned_report(plan, {}, checks_crc=options.limits.checks_crc)
    job = ExportJob(plan.splits, options, "dump", stops_at_damage=flags["on_damage"] == PREFIX)
    with show_progress(job.size_bytes, "dumping", "dumped") as advance:
        export_file(job, flags["to"], report, advance)
    if flags["report_path"] is not None:
        save_report(report, flags["report_path"])
    return report


def _plan_options(flags: DumpFlags) -> "PlanOptions":
    from ..export.places import Storage
    from ..export.plan import PlanOptions

    storage, skips_damage = Storage(flags["storage"] or "{}"), flags["on_damage"] == SKIP
    return PlanOptions(segment_bytes=flags["segment_bytes"], skips_damage=skips_damage, storage=storage)


def _refuse_damage(plan: "Plan", on_damage: str) -> None:
    if on_damage == FAIL:
        for damage in plan.damages.values():
            raise damage


def _read_options(flags: DumpFlags) -> "ReadOptions":
    from ..export.dumpfile import COLUMNS
    from ..export.instant import parse_instant
    from ..export.read import ReadOptions
    from ..export.selection import Selection
    from ..store.blockscan import ScanLimits

    starting, ending = flags["starting"], flags["ending"]
    selection = Selection(
        topics=frozenset(flags["topics"]),
        tags=frozenset(flags["tags"]),
        keys=frozenset(flags["keys"]),
        from_ms=None if starting is None else parse_instant(starting, "--from"),
        until_ms=None if ending is None else parse_instant(ending, "--until"),
        includes_system=flags["includes_system"],
        queue_ids=frozenset(flags["queue_ids"]) or None,
    )
    limits = ScanLimits(checks_crc=not flags["skips_crc"])
    return ReadOptions(selection, COLUMNS, limits, flags["on_damage"] == SKIP)
