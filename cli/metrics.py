"""The metrics of ``rocketlet broker`` and ``rocketlet up``: the option, and their start beside a broker."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import click

from ..common.clock import Clock
from ..common.errors import ConfigError
from . import settings

if TYPE_CHECKING:
    from ..broker.server import Broker

_OPTION: Final = "--metrics-port"
TYPE_KEY: Final = "metricsExporterType"
PORT_KEY: Final = "metricsPromExporterPort"
_SERVED: Final = "PROM"
METRICS_PORT: Final = click.option(
    _OPTION, type=settings.PORT, help="Serve metrics for Prometheus at this port; 0 takes a free one."
)


def metrics_settings(port: int | None) -> dict[str, object]:
    """Return what the option means by Java's keys."""
    return {TYPE_KEY: None if port is None else _SERVED, PORT_KEY: port}


def check_metrics(given: Mapping[str, str]) -> None:
    """Look whether metrics can be served, if they shall be.

    Raises:
        ConfigError: what the extra ``metrics`` brings is not installed.
    """
    if given.get(TYPE_KEY, "").strip() != _SERVED:
        return
    try:
        import prometheus_client as _  # noqa: F401 # the question is whether it is there
    except ModuleNotFoundError as error:
        message = f"metrics need {error.name}: pip install 'rocketlet[metrics]'"
        raise ConfigError(message, key=TYPE_KEY) from error


async def enter_metrics(servers: AsyncExitStack, clock: Clock, broker: "Broker") -> str | None:
    """Serve the metrics of a started broker if they shall be; return their address.

    Raises:
        ConfigError: a port or address that cannot be used.
    """
    config = broker.config
    if config.metrics_exporter != _SERVED:
        return None
    from ..broker.settings.config import parse_metrics_labels
    from ..metrics.server import MetricsConfig, MetricsServer
    from .serve import naming_holder

    where = MetricsConfig(
        host=config.metrics_host.strip() or config.host,
        port=config.metrics_port,
        labels=parse_metrics_labels(config.metrics_label),
    )
    with naming_holder(_OPTION):
        return (await servers.enter_async_context(MetricsServer(broker.figures, where, clock))).url
