"""What tests of applications, and our own, use: the broker fixture, faults, and a clock that stands still.

``rocketlet.testing.plugin`` is the pytest plugin. pytest loads it, and with it this module, in every run, so nothing is
imported here before somebody asks for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker_thread import RocketmqBroker
    from .client_requests import ClientRequest
    from .disk_faults import DiskFaults
    from .faults import Fault, InjectedFault
    from .manual_clock import ManualClock

__all__ = ["ClientRequest", "DiskFaults", "Fault", "InjectedFault", "ManualClock", "RocketmqBroker"]

_MODULES = {
    "ClientRequest": "client_requests",
    "DiskFaults": "disk_faults",
    "Fault": "faults",
    "InjectedFault": "faults",
    "ManualClock": "manual_clock",
    "RocketmqBroker": "broker_thread",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
