"""The error about a name that is not there: tests that look in the wrong place shall not pass."""


class UnknownNameError(ValueError):
    """There is no topic, consumer group, client or broker of this name."""
