"""What tests of applications, and our own, use: the broker fixture and a clock that stands still.

``rocketlet.testing.plugin`` is the pytest plugin. pytest loads it, and with it this module, in every run, so nothing is
imported here before somebody asks for it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker_thread import RocketmqBroker
    from .manual_clock import ManualClock

__all__ = ["ManualClock", "RocketmqBroker"]


def __getattr__(name: str) -> Any:
    if name == "ManualClock":
        from .manual_clock import ManualClock

        return ManualClock
    if name == "RocketmqBroker":
        from .broker_thread import RocketmqBroker

        return RocketmqBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
