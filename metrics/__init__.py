"""Metrics of a broker over HTTP, for Prometheus: the names of a 5.x broker, and those of Apache's exporter.

It reads the broker through ``Broker.figures`` alone, when it is asked. Needs the extra ``metrics`` (prometheus_client);
nothing else imports this folder before metrics are asked for.
"""
