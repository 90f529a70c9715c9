"""RocketMQ stores as Spark tables; needs pyspark and pyarrow (extra ``spark``) and Java 17 or newer."""

from .source import RocketMQDataSource, register

__all__ = ["RocketMQDataSource", "register"]
