"""``rocketlet export``: the messages of store directories as one file, and the proof that none is missing."""

import difflib
import os
import pathlib
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click
import msgspec

from ..common.errors import ConfigError
from .progress import show_progress

if TYPE_CHECKING:
    from ..export.read import ReadOptions
    from ..export.report import Report

_PATH: Final = click.Path(path_type=pathlib.Path)


class ExportFlags(TypedDict):
    """The arguments of ``export``."""

    stores: tuple[pathlib.Path, ...]
    to: pathlib.Path
    topics: tuple[str, ...]
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    starting: str | None
    ending: str | None
    kind: str | None
    includes_system: bool
    skips_crc: bool
    overwrites: bool
    segment_bytes: int | None
    report_path: pathlib.Path | None


@click.command(short_help="Write the messages of stores to a file.")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=_PATH)
@click.option("--to", metavar="PATH", required=True, type=_PATH, help="File to write.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; repeatable.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only messages with this tag; repeatable.")
@click.option("--key", "keys", metavar="KEY", multiple=True, help="Only messages with this key; repeatable.")
@click.option("--from", "starting", metavar="TIME", help="Only messages stored at this time or later.")
@click.option("--until", "ending", metavar="TIME", help="Only messages stored before this time.")
@click.option("--format", "kind", type=click.Choice(["parquet", "arrow", "jsonl"]), help="[default: by the suffix]")
@click.option("--include-system-topics", "includes_system", is_flag=True, help="And system, retry and DLQ topics.")
@click.option("--no-crc", "skips_crc", is_flag=True, help="Do not verify the checksums of bodies.")
@click.option("--overwrite", "overwrites", is_flag=True, help="Replace the file if it exists.")
@click.option("--segment-bytes", type=click.IntRange(min=1), help="Size of the log's files.  [default: as found]")
@click.option("--report", "report_path", metavar="PATH", type=_PATH, help="Write the report as JSON, too.")
@click.pass_context
def export(ctx: click.Context, **flags: Unpack[ExportFlags]) -> None:
    """Write the messages of one or more store directories to a Parquet, Arrow or JSON lines file.

    Times are epoch milliseconds or ISO 8601, in UTC where they name no zone. A broker may be writing to a store: what
    it had written when the export began is exported. Of a damaged store, what comes before the damage is. Exit code 1
    means damage, or a report that proves the export incomplete.
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
        from ..export.plan import plan_prefixes
        from ..export.read import Reading
        from ..export.write import format_of, write_all
    except ModuleNotFoundError as error:
        raise ConfigError(f"export needs {error.name}: pip install 'rocketlet[export]'") from error
    target = os.fspath(flags["to"])
    kind = flags["kind"] or format_of(target)
    if os.path.exists(target) and not flags["overwrites"]:
        raise ConfigError(f"{target} exists; --overwrite replaces it")
    options = _read_options(flags)
    plan = plan_prefixes(map(os.fspath, flags["stores"]), flags["segment_bytes"])
    reading = Reading(plan.splits, options, damages=plan.damages, ends=plan.ends)
    with show_progress(reading.size_bytes, "exporting", "exported") as reading.advance:
        write_all(reading, target, kind)
    if flags["report_path"] is not None:
        _save_report(reading.report, flags["report_path"])
    return reading.report


def _read_options(flags: ExportFlags) -> "ReadOptions":
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
    )
    return ReadOptions(selection, limits=ScanLimits(checks_crc=not flags["skips_crc"]))


def _warn_of_absent(topics: tuple[str, ...], report: "Report") -> None:
    """Name the topics that were asked for and are not in the log; they may be misspelt."""
    known = sorted({topic for tally in report.stores for topic, _ in tally.queues})
    for topic in topics:
        if topic not in known:
            nearest = difflib.get_close_matches(topic, known, n=1)
            hint = f"; there is {nearest[0]}" if nearest else ""
            click.echo(f"rocketlet: no message of topic {topic} is in the log{hint}", err=True)


def _save_report(report: "Report", path: pathlib.Path) -> None:
    text = msgspec.json.format(msgspec.json.encode(report.to_json()), indent=2)
    try:
        path.write_bytes(text + b"\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
