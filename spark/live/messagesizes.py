"""How large the messages of topics are, by one of each, so that tasks get as much to do as they should.

Rules:

- Only where there are so many ranges that some are packed together (``liverange.pack_ranges``), and of the topics with
  most messages only; of the others a usual size is assumed.
- It is an estimate: a broker that cannot be asked, and a message that is gone, only make it worse.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...common.errors import RocketletError
from ...remoting.transport.event_loop import find_loop_factory
from ..cluster.liveoptions import LiveOptions
from ..cluster.liverange import MESSAGE_BYTES, USUAL_TASKS, LiveRange
from ..options.losses import Losses
from .pulling import RangePulls

_MOST_TOPICS: Final = 64
_log = logging.getLogger(__name__)


def sample_bytes(ranges: Sequence[LiveRange], options: LiveOptions) -> dict[str, float]:
    """Return the bytes of a message by topic, as far as they are worth asking for."""
    if len(ranges) <= max(options.min_partitions or 0, USUAL_TASKS):
        return {}
    messages: Counter[str] = Counter()
    largest: dict[str, LiveRange] = {}
    for each in ranges:
        messages[each.topic] += len(each)
        if each.topic not in largest or len(each) > len(largest[each.topic]):
            largest[each.topic] = each
    topics = [topic for topic, _ in messages.most_common(_MOST_TOPICS)]
    asked = [replace(largest[topic], start=largest[topic].stop - 1) for topic in topics]
    once = replace(options.access, retries=0)
    try:
        with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
            return runner.run(_ask(asked, replace(options, access=once, losses=Losses(fails=False))))
    except RocketletError as error:
        _log.info("sampling message sizes failed, assuming %d bytes a message: %s", MESSAGE_BYTES, error)
        return {}


async def _ask(ranges: Sequence[LiveRange], options: LiveOptions) -> dict[str, float]:
    pulls = RangePulls(ranges, options)
    found: dict[str, float] = {}
    while (answers := await pulls.collect()) is not None:
        found |= {each.topic: float(len(each.body)) for each in answers if each.body}
    return found
