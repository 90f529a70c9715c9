"""``rocketlet store``: reads a store directory and says what is wrong with it, and makes a damaged one sound again."""

import os
import sys
import time
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click
import msgspec

from . import settings
from .verbs.progress import show_progress

if TYPE_CHECKING:
    from ..store.audit.audit_report import AuditReport
    from ..store.audit.store_audit import StoreAudit

_DIRECTORY: Final = click.argument("directory", metavar="DIR", type=click.Path())
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")


class CheckFlags(TypedDict):
    """The arguments of ``store check``."""

    directory: str
    config_file: str | None
    pairs: dict[str, str]
    as_json: bool


class RepairFlags(TypedDict):
    """The arguments of ``store repair``."""

    directory: str
    config_file: str | None
    pairs: dict[str, str]
    dry_run: bool
    yes: bool
    save_cut: str | None


@click.group
def store() -> None:
    """Check and repair store directories."""


@store.command(short_help="Report what is damaged; write nothing.")
@_DIRECTORY
@settings.with_options(settings.CONFIG, settings.SET, _JSON)
@click.pass_context
def check(ctx: click.Context, **flags: Unpack[CheckFlags]) -> None:
    """Read everything in a store directory and report what is damaged; nothing is written.

    A broker may have the store open. Exit code 1 means damage. The sizes of files are taken from the files, those of
    the index, which no file tells, from the settings.
    """
    report = _audit(_start(flags["directory"], flags["config_file"], flags["pairs"]), "checking", "checked")
    if flags["as_json"]:
        click.echo(msgspec.json.format(msgspec.json.encode(report.to_json()), indent=2))
    else:
        click.echo("\n".join(report.lines()))
    if not report.is_sound:
        ctx.exit(1)


@store.command(short_help="Make a damaged store sound again.")
@_DIRECTORY
@settings.with_options(
    settings.CONFIG,
    settings.SET,
    click.option("--dry-run", is_flag=True, help="Only say what would be done."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option(
        "--save-cut", metavar="DIR", type=click.Path(file_okay=False), help="Copy the log's files that lose something."
    ),
)
@click.pass_context
def repair(ctx: click.Context, **flags: Unpack[RepairFlags]) -> None:
    """Cut the log at its first damage and write queues and index anew, after saying so.

    No broker may have the store open. Exit code 1 means that damage is left, which the report lists.
    """
    if not (flags["dry_run"] or flags["yes"] or sys.stdin.isatty()):
        raise click.UsageError("--yes is needed where nobody can be asked")
    audit = _start(flags["directory"], flags["config_file"], flags["pairs"])
    if flags["dry_run"]:
        _say_plan(audit)
        return
    from ..store.files.files import OS_FILES
    from ..store.files.store_lock import StoreLock

    lock = StoreLock(OS_FILES, audit.found_config.root)
    lock.acquire()
    try:
        is_changed = _repair(audit, flags)
    finally:
        lock.release()
    if is_changed and not _reopen_and_check(audit):
        ctx.exit(1)


def _start(directory: str, config_file: str | None, pairs: dict[str, str]) -> "StoreAudit":
    from ..store.audit.store_audit import StoreAudit
    from ..store.files.store_config import StoreConfig

    given = settings.gather_settings({settings.STORE_KEY: directory}, pairs, config_file)
    return StoreAudit(StoreConfig.from_java(given), frozenset(given))


def _audit(audit: "StoreAudit", doing: str, done: str) -> "AuditReport":
    with show_progress(audit.size_bytes, doing, done) as audit.advance:
        return audit.run()


def _say_plan(audit: "StoreAudit") -> bool:
    """Print what is to be done; tell whether there is anything."""
    from ..store.audit.repair import plan_repair

    _audit(audit, "checking", "checked")
    plan = plan_repair(audit)
    click.echo("\n".join(plan.lines()))
    return not plan.is_empty


def _repair(audit: "StoreAudit", flags: RepairFlags) -> bool:
    from ..store.audit.repair import apply_repair, plan_repair, save_cut

    if not _say_plan(audit):
        return False
    if not flags["yes"]:
        click.confirm("Repair the store?", abort=True)
    plan = plan_repair(audit)
    if flags["save_cut"] is not None:
        save_cut(plan, flags["save_cut"])
        click.echo(f"copied {len(plan.cut_files)} files of the log to {os.path.join(flags['save_cut'], 'commitlog')}")
    apply_repair(plan)
    return True


def _reopen_and_check(audit: "StoreAudit") -> bool:
    from ..store.audit.repair import reopen
    from ..store.audit.store_audit import StoreAudit

    config = audit.found_config
    reopen(config, lambda: time.time_ns() // 1_000_000)
    report = _audit(StoreAudit(config), "checking", "checked")
    click.echo("\n".join(report.lines()))
    return report.is_sound
