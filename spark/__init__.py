"""The Spark data source rocketmq."""
