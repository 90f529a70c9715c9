"""What GET_BROKER_RUNTIME_INFO tells about timers (``TimerMessageStore``; behaviour.md D.4).

timerReadBehind    seconds that the first waiting message is late
timerOffsetBehind  messages of the timer topic that are not in the wheel yet
timerCongestNum    messages in the wheel
timer…Tps          messages into the timer topic, and out of the wheel, in a second; of the last ten
"""

from collections.abc import Callable, Mapping

from ...common.names import TIMER_TOPIC
from ..delay.timerdelivery import TimerDelivery
from .runtimeinfo import RuntimeInfo, format_double, rate


def tell_timers(runtime: RuntimeInfo, delivery: TimerDelivery, now_ms: Callable[[], int]) -> None:
    """Have the figures of the timers told from now on."""
    timers, statistics = delivery.timers, runtime.statistics
    statistics.count_timers_out = lambda: delivery.taken_out

    def lines() -> Mapping[str, str]:
        due_at_ms, span = delivery.due_at_ms, statistics.span(10)
        behind_ms = 0 if due_at_ms is None else max(0, now_ms() - due_at_ms)
        waiting = delivery.store.max_offset(TIMER_TOPIC, 0) - timers.queue_offset
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(max(0, waiting)),
            "timerEnqueueTps": format_double(rate(span, lambda sample: sample.timers_in)),
            "timerDequeueTps": format_double(rate(span, lambda sample: sample.timers_out)),
        }

    runtime.sources.append(lines)
    runtime.slow_sources.append(lambda: {"timerCongestNum": str(timers.count_waiting())})
