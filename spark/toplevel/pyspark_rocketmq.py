"""Where Spark finds the data source ``rocketmq`` by itself: it looks for ``DefaultSource`` in modules named so."""

import contextlib

# Without the packages of the extra, Spark's search must not fail for the sake of other sources.
with contextlib.suppress(ModuleNotFoundError):
    from rocketlet.spark.source import RocketMQDataSource as DefaultSource

    __all__ = ["DefaultSource"]
