"""``rocketlet cluster``, ``broker list`` and ``broker status``: which servers are there, and how they are doing."""

from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from ...common.errors import RocketletError
from .connecting import BROKER, ClusterFlags, CommandFailed, cluster_options, explain, run
from .output import show_pairs, show_rows

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.admin_values import BrokerNode

_FIGURES: Final = {
    "version": "brokerVersionDesc",
    "in_tps": "putTps",
    "out_tps": "getTransferredTps",
    "in_today": "msgPutTotalTodayNow",
    "in_yesterday_night": "msgPutTotalTodayMorning",
    "disk": "commitLogDiskRatio",
    "behind_bytes": "dispatchBehindBytes",
    "runtime": "runtime",
}
_COPY: Final = ("in_sync_slaves", "log_end", "copy_behind_bytes", "copy_bytes_s")
_STATUS: Final = (
    *("cluster", "broker", "id", "role", "address"),
    *(name for name in _FIGURES if name != "in_yesterday_night"),
    *_COPY,
)


class BrokerFlags(ClusterFlags):
    """The arguments of ``broker status``."""

    broker: str


@click.group
def cluster() -> None:
    """List clusters, and how their brokers are doing."""


@cluster.command("list")
@cluster_options
def list_clusters(**flags: Unpack[ClusterFlags]) -> None:
    """List the clusters."""
    run(flags, partial(_list_clusters, flags))


async def _list_clusters(flags: ClusterFlags, admin: "Admin") -> None:
    nodes = await admin.brokers()
    rows: list[dict[str, object]] = []
    for name in sorted({node.cluster for node in nodes}):
        own = [node for node in nodes if node.cluster == name]
        masters = sum(0 in node.addresses for node in own)
        slaves = sum(len(node.addresses) for node in own) - masters
        rows.append({"cluster": name, "brokers": len(own), "masters": masters, "slaves": slaves})
    show_rows(("cluster", "brokers", "masters", "slaves"), rows, as_json=flags["as_json"])


@cluster.command("status")
@cluster_options
def cluster_status(**flags: Unpack[ClusterFlags]) -> None:
    """Show figures of each broker, and how far slaves have copied; one that does not answer is exit code 1."""
    silent: list[str] = []
    run(flags, partial(_cluster_status, flags, silent))
    if silent:
        raise CommandFailed("; ".join(silent))


async def _cluster_status(flags: ClusterFlags, silent: list[str], admin: "Admin") -> None:
    rows: list[dict[str, object]] = []
    for node in await admin.brokers():
        copies = await _copies_of(admin, node, silent)
        for row in _node_rows(node):
            broker_id = int(str(row["id"]))
            try:
                row.update(_figures_of(await admin.figures(node.name, broker_id)))
            except RocketletError as error:
                silent.append(f"broker {node.name}, id {broker_id}: {explain(error)}")
            rows.append({**row, **copies.get(broker_id, {})})
    show_rows(_STATUS, rows, as_json=flags["as_json"])


async def _copies_of(admin: "Admin", node: "BrokerNode", silent: list[str]) -> dict[int, dict[str, object]]:
    """Return how far each copy of a broker has come, by ids; none of a broker that has no slaves."""
    if len(node.addresses) == 1:
        return {}
    try:
        states = await admin.replicas(node.name)
    except RocketletError as error:
        silent.append(f"copies of broker {node.name}: {explain(error)}")
        return {}
    return {
        state.broker_id: dict(
            zip(_COPY, (state.in_sync_slaves, state.log_end, state.behind_bytes, state.bytes_in_second), strict=True)
        )
        for state in states
    }


def _figures_of(told: dict[str, str]) -> dict[str, object]:
    figures: dict[str, object] = {name: told.get(key, "") for name, key in _FIGURES.items()}
    for name in ("in_tps", "out_tps"):
        figures[name] = round(float(next(iter(told.get(_FIGURES[name], "").split()), "0")), 2)  # blank while young
    now, morning = figures["in_today"], figures.pop("in_yesterday_night")
    figures["in_today"] = int(str(now or 0)) - int(str(morning or 0))
    figures["runtime"] = str(figures["runtime"]).strip("[ ]")
    return figures


@click.command("list")
@cluster_options
def list_brokers(**flags: Unpack[ClusterFlags]) -> None:
    """List the brokers that the name servers know, slaves too."""
    run(flags, partial(_list_brokers, flags))


async def _list_brokers(flags: ClusterFlags, admin: "Admin") -> None:
    rows = [row for node in await admin.brokers() for row in _node_rows(node)]
    show_rows(("cluster", "broker", "id", "role", "address"), rows, as_json=flags["as_json"])


def _node_rows(node: "BrokerNode") -> list[dict[str, object]]:
    return [
        {
            "cluster": node.cluster,
            "broker": node.name,
            "id": broker_id,
            "role": "slave" if broker_id else "master",
            "address": address,
        }
        for broker_id, address in node.addresses.items()
    ]


@click.command("status")
@BROKER
@cluster_options
def broker_status(**flags: Unpack[BrokerFlags]) -> None:
    """Show all figures that the master of BROKER tells of itself."""
    run(flags, partial(_broker_status, flags))


async def _broker_status(flags: BrokerFlags, admin: "Admin") -> None:
    show_pairs(dict(sorted((await admin.figures(flags["broker"])).items())), as_json=flags["as_json"])
