"""``rocketlet dump``: the messages of stores as a stream of msgpack values, for ``rocketlet load``."""

import os
from typing import TYPE_CHECKING, Unpack

import click

from ..common.errors import ConfigError
from .progress import show_progress
from .reading import PREFIX, ReadingFlags, make_read_options, needs_extra, plan_reading, reading_options, tell

if TYPE_CHECKING:
    from ..export.report.report import Report


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
        report = _run(flags)
    tell(ctx, flags, report, "dumped")


def _run(flags: DumpFlags) -> "Report":
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
