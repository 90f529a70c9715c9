"""The metrics of a 5.4.0 broker: names, kinds and labels, and why some are not told here, or others are.

``tests/metrics/official.json`` holds what a running official broker told; ``tests/interop/test_figures.py`` holds it
against one.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Final

OFFICIAL: Final[Mapping[str, Sequence[str]]] = json.loads(
    (pathlib.Path(__file__).parents[1] / "metrics" / "official.json").read_text()
)
"""Its kind and its labels, by name."""

_COSTS: Final = "a histogram would cost every message a search and an addition"
_NOT_KEPT: Final = "not kept by topic"
_POP: Final = "POP is not served"
LEFT_OUT: Final = {
    "rocketmq_message_size": _COSTS,
    "rocketmq_rpc_latency_milliseconds": _COSTS,
    "rocketmq_finish_message_latency_milliseconds": _COSTS,
    "rocketmq_delay_message_latency_seconds": _COSTS,
    "rocketmq_topic_create_execution_time_milliseconds": "a histogram of something rare",
    "rocketmq_half_messages": _NOT_KEPT,
    "rocketmq_commit_messages_total": _NOT_KEPT,
    "rocketmq_rollback_messages_total": _NOT_KEPT,
    "rocketmq_timing_messages": _NOT_KEPT,
    "rocketmq_timer_enqueue_total": _NOT_KEPT,
    "rocketmq_timer_dequeue_total": _NOT_KEPT,
    "rocketmq_timer_enqueue_latency_milliseconds": "not measured",
    "rocketmq_timer_dequeue_lag": "the wheel is not counted by time",
    "rocketmq_timer_message_snapshot": "the wheel is not counted by time",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": _POP,
    "rocketmq_pop_checkpoint_buffer_size": _POP,
    "rocketmq_pop_offset_buffer_size": _POP,
    "rocketmq_pop_revive_lag_milliseconds": _POP,
    "rocketmq_pop_revive_latency_milliseconds": _POP,
}
"""What a 5.4.0 broker tells and ours does not, with the reason."""

_LISTED: Final = "the name without a unit, as the pages of RocketMQ list it"
OWN: Final = {
    "rocketmq_consumer_lag_latency": _LISTED,
    "rocketmq_consumer_queueing_latency": _LISTED,
    "rocketmq_storage_size": _LISTED,
    "rocketmq_storage_message_reserve_time": _LISTED,
    "rocketmq_timer_dequeue_latency": _LISTED,
    "rocketlet_held_pulls": "our own",
    "rocketlet_timer_messages": "our own",
}
"""What ours tells and a 5.4.0 broker does not."""

OWN_LABELS: Final = {"rocketmq_messages_out_total": {"is_retry"}, "rocketmq_throughput_out_total": {"is_retry"}}
"""Labels that ours have besides: a 5.4.0 broker has this one for POP alone, and counts no other retries."""

SCOPE: Final = "otel_scope_name"
"""In all of a 5.4.0 broker, always ``broker-meter``: what wrote them, which says nothing of the broker."""


def labels_of(name: str) -> set[str]:
    """Return the labels that a metric has here, which is one of a 5.4.0 broker."""
    return {*OFFICIAL[name][1:], *OWN_LABELS.get(name, ())}
