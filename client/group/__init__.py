"""Membership in a consumer group: rebalancing, assigned queues, offsets, fetching."""
