"""What commands that read stores have in common: their options, what is read for them, and what is told of it.

    @click.command()
    @reading_options
    def dump(ctx, **flags: Unpack[ReadingFlags]): ...

    options = make_read_options(flags, schema)
    planned = plan_reading(flags, options)          the splits, and the report to add to
    tell(ctx, flags, planned.report, "dumped")      prints, and ends with 1 when something is amiss

The modules that need Arrow are imported by the functions, within ``needs_extra``.
"""

import contextlib
import difflib
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar

import click

from ..common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from ..export.plan.read_plan import PlanOptions
    from ..export.plan.selection import Selection
    from ..export.plan.split import Split
    from ..export.report.report import Report
    from ..export.write.log_reader import ReadOptions

FAIL, SKIP, PREFIX = DAMAGE_WORDS = ("fail", "skip", "prefix")
Command = TypeVar("Command", bound=Callable[..., Any])


class ReadingFlags(TypedDict):
    """The arguments of a command that reads stores."""

    stores: tuple[str, ...]
    topics: tuple[str, ...]
    queue_ids: tuple[int, ...]
    tags: tuple[str, ...]
    keys: tuple[str, ...]
    starting: str | None
    ending: str | None
    includes_system: bool
    pushes_down: bool
    on_damage: str
    skips_crc: bool
    segment_bytes: int | None
    storage: str | None
    report_path: str | None


class Planned(NamedTuple):
    """What is to be read, and the report that what is met is added to."""

    splits: "Sequence[Split]"
    report: "Report"


_OPTIONS: Final = (
    click.argument("stores", metavar="STORE...", nargs=-1, required=True),
    click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; repeatable."),
    click.option("--queue", "queue_ids", metavar="ID", type=int, multiple=True, help="Only this queue; repeatable."),
    click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only messages with this tag; repeatable."),
    click.option("--key", "keys", metavar="KEY", multiple=True, help="Only messages with this key; repeatable."),
    click.option("--from", "starting", metavar="TIME", help="Only messages stored at this time or later."),
    click.option("--until", "ending", metavar="TIME", help="Only messages stored before this time."),
    click.option("--include-system-topics", "includes_system", is_flag=True, help="And system, retry and DLQ topics."),
    click.option("--push-down", "pushes_down", is_flag=True, help="Read no more than queues and index say is wanted."),
    click.option(
        "--on-damage",
        type=click.Choice(DAMAGE_WORDS),
        default=PREFIX,
        show_default=True,
        help="Of a damaged store: nothing, all but the damage, or what is before it.",
    ),
    click.option("--no-crc", "skips_crc", is_flag=True, help="Do not verify the checksums of bodies."),
    click.option("--segment-bytes", type=click.IntRange(min=1), help="Size of the log's files.  [default: as found]"),
    click.option("--storage-options", "storage", metavar="JSON", help="Arguments of the file system of URLs."),
    click.option("--report", "report_path", metavar="PATH", help="Write the report as JSON, too."),
)


def reading_options(command: Command) -> Command:
    """Give a command the argument and the options of ``ReadingFlags``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@contextlib.contextmanager
def needs_extra(name: str) -> Generator[None]:
    """Turn a missing package into what to install.

    Raises:
        ConfigError: The packages of the extra are not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f"{name} needs {error.name}: pip install 'rocketlet[export]'") from error


def make_read_options(
    flags: ReadingFlags, schema: "pa.Schema", delays_ms: Sequence[int] | None = None
) -> "ReadOptions":
    """Return which messages and columns are read.

    Raises:
        ConfigError: A time that is none.
    """
    from ..export.columns.system_columns import DEFAULT_DELAYS_MS
    from ..export.write.log_reader import ReadOptions
    from ..store.commitlog.record_blocks import ScanLimits

    limits, skips = ScanLimits(checks_crc=not flags["skips_crc"]), flags["on_damage"] == SKIP
    return ReadOptions(_selection(flags), schema, limits, skips, delays_ms or DEFAULT_DELAYS_MS)


def plan_reading(flags: ReadingFlags, options: "ReadOptions", split_bytes: int | None = None) -> Planned:
    """Return what is to be read.

    Raises:
        ConfigError: A directory is not a store.
        StoreDamagedError: It is damaged, and that is to fail.
        StoreError: It cannot be read.
    """
    from ..export.plan.read_plan import plan_prefixes
    from ..export.pushdown.pushdown import PushdownOptions, PushdownResult, planned_report, push_down

    plan = plan_prefixes(flags["stores"], _plan_options(flags, split_bytes))
    if flags["on_damage"] == FAIL:
        for damage in plan.damages.values():
            raise damage
    pushed = PushdownResult(plan.splits, {})
    if flags["pushes_down"]:
        pushed = push_down(plan.splits, options.selection, PushdownOptions())
    report = planned_report(plan, pushed.stores, _named_filters(flags), checks_crc=options.limits.checks_crc)
    return Planned(pushed.splits, report)


def tell(ctx: click.Context, flags: ReadingFlags, report: "Report", done: str) -> None:
    """Write and print the report, warn of what may be a mistake, and end with 1 if anything is amiss.

    Raises:
        ConfigError: The report cannot be written.
    """
    from ..export.report.report import save_report

    if flags["report_path"] is not None:
        save_report(report, flags["report_path"])
    for counters in report.stores:
        if counters.damage is not None:
            click.echo(f"rocketlet: {counters.store} is {done} up to damage only: {counters.damage}", err=True)
    for line in report.lines():
        click.echo(line)
    _warn_of_absent(flags["topics"], report)
    if report.faults():
        ctx.exit(1)


def _plan_options(flags: ReadingFlags, split_bytes: int | None) -> "PlanOptions":
    from ..export.plan.filesystems import Storage
    from ..export.plan.read_plan import SPLIT_BYTES, PlanOptions

    return PlanOptions(
        segment_bytes=flags["segment_bytes"],
        split_bytes=split_bytes or SPLIT_BYTES,
        skips_damage=flags["on_damage"] == SKIP,
        storage=Storage(flags["storage"] or "{}"),
    )


def _selection(flags: ReadingFlags) -> "Selection":
    from ..export.plan.selection import Selection, parse_instant

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


def _named_filters(flags: ReadingFlags) -> list[str]:
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
    known = sorted({topic for counters in report.stores for topic, _ in counters.queues})
    for topic in topics:
        if topic not in known:
            nearest = difflib.get_close_matches(topic, known, n=1)
            hint = f"; there is {nearest[0]}" if nearest else ""
            click.echo(f"rocketlet: no message of topic {topic} is in the log{hint}", err=True)
