"""What tests of applications, and our own, use: the broker fixture, faults, and a clock that stands still.

``rocketlet.testing.plugin`` is the pytest plugin. pytest loads it, and with it this module, in every run, so nothing is
imported here before somebody asks for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker_thread import RocketmqBroker
    from .faults.disk_faults import DiskFaults
    from .faults.request_faults import Fault, InjectedFault
    from .manual_clock import ManualClock
    from .views.client_requests import ClientRequest

__all__ = ["ClientRequest", "DiskFaults", "Fault", "InjectedFault", "ManualClock", "RocketmqBroker"]

_MODULES = {
    "ClientRequest": "views.client_requests",
    "DiskFaults": "faults.disk_faults",
    "Fault": "faults.request_faults",
    "InjectedFault": "faults.request_faults",
    "ManualClock": "manual_clock",
    "RocketmqBroker": "broker_thread",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
