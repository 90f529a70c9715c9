"""One client among brokers: connections, routes, heartbeats, settings, hooks, results."""
