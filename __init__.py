"""A RocketMQ-compatible message broker that installs with pip."""
