"""The rocketlet command; arguments are parsed here only."""
