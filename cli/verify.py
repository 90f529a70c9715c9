"""``rocketlet export verify``: compares exported files with the report of their export."""

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from .reading import needs_extra

if TYPE_CHECKING:
    from ..export.write.verify import ExportedRows


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
