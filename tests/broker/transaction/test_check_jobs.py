"""How far transactions are checked, as it is saved."""

import json
import pathlib

from halfcalls import PATIENT, TRANSACTION_GROUP, next_round, send_half
from raw_calls import open_caller

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.names import HALF_TOPIC
from rocketlet.testing.manual_clock import ManualClock


async def test_stop_saves_how_far_transactions_are_checked(settings: dict[str, str], clock: ManualClock) -> None:
    """Though the next save was far: after a restart nobody is asked again about what was passed."""
    config = BrokerConfig.from_java({**settings, **PATIENT, "flushConsumerOffsetInterval": "86400000"})
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await send_half(caller)
        await next_round(clock)
    saved = json.loads((pathlib.Path(config.store.root) / "config" / "consumerOffset.json").read_text())
    assert saved["offsetTable"][f"{HALF_TOPIC}@{TRANSACTION_GROUP}"] == {"0": 1}
