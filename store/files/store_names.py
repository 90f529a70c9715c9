"""Which files brokers make in the directory of a store, Java's too (docs/reference/storage.md).

Neither ``lock`` is among them, which belongs to the process that has it open, nor are by-products of the Java broker
that it makes itself where they are missing.
"""

import re
from typing import Final

_SEGMENT: Final = r"\d{20}"
_SPARE: Final = r"(?:\.bak|\.tmp|\.damaged)?"
_TABLES: Final = (
    "topics|subscriptionGroup|consumerOffset|consumerFilter|delayOffset|consumerOrderInfo|topicQueueMapping"
    "|messageRequestMode|lmqConsumerOffset|replica"
)
STORE_FILE: Final = re.compile(
    "|".join(
        [
            rf"commitlog/{_SEGMENT}",
            rf"(?:consumequeue|consumequeue_ext|batchconsumequeue)/[^/]+/\d+/{_SEGMENT}",
            r"index/\d{17}",
            rf"timerlog/{_SEGMENT}",
            rf"config/(?:(?:{_TABLES})\.json|broker\.properties|timercheck|timermetrics|transactionMetrics){_SPARE}",
            r"config/tables\.journal(?:\.tmp)?",
            r"(?:checkpoint|abort|timerwheel)(?:\.bak|\.tmp)?",
        ]
    )
)
"""The path of a file from the directory on."""
STORE_FOLDERS: Final = frozenset(
    ["commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "timerlog", "config"]
)
"""What lies there besides files."""
