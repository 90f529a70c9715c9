"""``rocketlet status`` and ``rocketlet down``: what runs on this machine, and its end.

exit code   status                             down
0           what runs can be used              it has stopped
1           nothing runs                       nothing runs, or it cannot be stopped from here
2           an option that cannot be used      the same; several run, and none is named
3           a server of it does not answer
"""

import contextlib
import glob
import os
import tempfile
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from ..common.errors import ConfigError, DecodeError, RemotingError
from ..common.names import SELF_TEST_TOPIC
from . import settings
from .instances import FILE_NAME, Instance, InstanceTls, RunningInstance, find_instance
from .verbs.connecting import CommandFailed, NoServerError

if TYPE_CHECKING:
    from ..remoting.tls.tls_settings import KeyPair
    from ..remoting.transport.client import ConnectionPool

_TIMEOUT_MS: Final = 5_000
_STORE: Final = click.option(
    "--store",
    type=click.Path(file_okay=False),
    help="Directory that it was started with.  [default: the user's data directory, and temporary ones]",
)


class _DownFlags(TypedDict):
    store: str | None


class _StatusFlags(_DownFlags):
    as_json: bool


@click.command
@_STORE
def down(**flags: Unpack[_DownFlags]) -> None:
    """Stop what "rocketlet up" has started, and wait until it has ended."""
    with contextlib.ExitStack() as opened:
        found = _find(flags["store"], opened)
        if len(found) > 1:
            names = ", ".join(running.instance.store for running in found)
            raise click.UsageError(f"{len(found)} are running, --store names the one to stop: {names}")
        [running] = found
        pid, store = running.instance.pid, running.instance.store
        try:
            is_here = running.terminate()
        except PermissionError as error:
            raise CommandFailed(f"process {pid}, which serves {store}, is another user's") from error
        if not is_here and running.is_running():
            raise CommandFailed(f"what serves {store} runs in a container or on a machine of its own: stop it there")
        running.wait_end()
        click.echo(f"stopped process {pid}, which served {store}")


@click.command
@_STORE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def status(ctx: click.Context, **flags: Unpack[_StatusFlags]) -> None:
    """Show what "rocketlet up" has started on this machine, and whether clients can use it.

    Exit code 0 means that they can, 1 that nothing runs, 3 that a server does not answer.
    """
    import asyncio

    with contextlib.ExitStack() as opened:
        instances = [running.instance for running in _find(flags["store"], opened)]
        faults = [asyncio.run(_find_fault(instance)) for instance in instances]
    rows = [_describe(*each) for each in zip(instances, faults, strict=True)]
    if flags["as_json"]:
        from .verbs.output import show_json

        show_json(rows)
    else:
        width = max(len(name) for row in rows for name in row)
        lines = [[f"{name.replace('_', ' '):{width}}  {value}" for name, value in row.items() if value] for row in rows]
        click.echo("\n\n".join("\n".join(block) for block in lines))
    if any(faults):
        ctx.exit(NoServerError.exit_code)


def _find(store: str | None, opened: contextlib.ExitStack) -> list[RunningInstance]:
    """Return what runs over a store; without one, over the usual store and over temporary ones.

    Raises:
        CommandFailed: nothing does, or the file of a store cannot be read.
    """
    usual = settings.data_path("store")
    temporary = glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{settings.EPHEMERAL_PREFIX}*", FILE_NAME))
    places = (
        [usual, *map(os.path.dirname, sorted(temporary))]
        if store is None
        else [os.path.abspath(os.path.expanduser(store))]
    )
    found: list[RunningInstance] = []
    for place in places:
        try:
            running = find_instance(place)
        except (PermissionError, DecodeError) as error:
            if store is None and place != usual:  # somebody else's
                continue
            raise CommandFailed(f"{os.path.join(place, FILE_NAME)}: {error}") from error
        if running is not None:
            found.append(opened.enter_context(running))
    if not found:
        others = "" if store is not None else ", and none with a temporary one; --store names another"
        raise CommandFailed(f"no rocketlet runs with the store {places[0]}{others}")
    return found


def _describe(instance: Instance, fault: str | None) -> dict[str, object]:
    from .verbs.arguments import format_instant

    return {
        "state": f"unusable: {fault}" if fault else "ready",
        "pid": instance.pid,
        **instance.addresses,
        "store": f"{instance.store} (removed at exit)" if instance.is_ephemeral else instance.store,
        "since": format_instant(instance.began_at_ms),
        "version": instance.version,
        "log": instance.log,
    }


async def _find_fault(instance: Instance) -> str | None:
    """Return why clients cannot use it; None if they can."""
    from ..remoting.transport.client import ConnectionPool
    from ..remoting.transport.event_loop import LoopClock
    from .starting.protection import own_context

    try:
        context = None if instance.tls is None else own_context(_shown_pair(instance.tls))
    except ConfigError as error:
        return f"it wants a certificate that cannot be shown here: {error}"
    async with ConnectionPool(LoopClock(), tls=context) as pool:
        try:
            for address in instance.brokers:
                await _ask_broker(pool, address)
            known = await _count_masters(pool, instance.namesrv)
        except RemotingError as error:
            return str(error)
    if known < instance.master_count:
        return f"the name server knows {known} of {instance.master_count} brokers"
    return None


def _shown_pair(tls: InstanceTls) -> "KeyPair | None":
    from ..remoting.tls.tls_settings import CLIENT_KEYS, KeyPair

    return KeyPair(tls.certificate_path, tls.key_path, "", CLIENT_KEYS) if tls.certificate_path else None


async def _ask_broker(pool: "ConnectionPool", address: str) -> None:
    """Have a broker look into its store; any answer will do, a slave may refuse."""
    from ..remoting.codec.command import Command
    from ..remoting.codec.request_codes import RequestCode
    from ..remoting.headers.offset import MaxOffsetHeader

    header = MaxOffsetHeader(topic=SELF_TEST_TOPIC, queue_id=0)
    await pool.request(address, Command.request(RequestCode.GET_MAX_OFFSET, header), _TIMEOUT_MS)


async def _count_masters(pool: "ConnectionPool", nameserver: str) -> int:
    """Return how many masters of topics a name server knows."""
    from ..common.codes import ResponseCode
    from ..remoting.bodies.body import decode_body
    from ..remoting.bodies.route import TopicRouteData
    from ..remoting.codec.command import Command
    from ..remoting.codec.request_codes import RequestCode
    from ..remoting.headers.client import TopicHeader

    request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicHeader(topic=SELF_TEST_TOPIC))
    answer = await pool.request(nameserver, request, _TIMEOUT_MS)
    if answer.code != ResponseCode.SUCCESS:
        return 0
    return sum(0 in data.broker_addrs for data in decode_body(TopicRouteData, answer.body).broker_datas)
