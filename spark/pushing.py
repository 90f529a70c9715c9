"""Whether a reading takes Spark's filters (option ``pushFilters``).

    messages = spark.read.format("rocketmq").load(…)
    messages.where("queueId = 0").join(messages.where("queueId = 1"), …)      two scans of one ``load``

Rule: before Spark 5, all scans of one ``load`` share the plan that was made last (``PythonDataSourceV2.setReadInfo``).
A plan that one scan's filters have narrowed would leave rows out of the others, without a word; so by default it is not
narrowed there. Who asks for it makes one scan of each ``load``. The options that select are safe, as each ``load`` has
its own.
"""

from typing import Final

import pyspark

from .optionvalues import Given

PUSH_OPTION: Final = "pushFilters"
_FIRST_SAFE: Final = 5


def parse_pushing(given: Given) -> bool:
    """Tell whether filters are taken (raises ``ConfigError`` for a value that is neither true nor false)."""
    return given.flag(PUSH_OPTION, default=keeps_plans_apart(pyspark.__version__))


def keeps_plans_apart(version: str) -> bool:
    """Tell whether each scan has a plan of its own in this version of Spark."""
    return int(version.partition(".")[0]) >= _FIRST_SAFE
