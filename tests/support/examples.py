"""How many examples hypothesis draws of what takes long: few in an ordinary run, more in ``make test-long``."""

from hypothesis import settings

_USUAL = 100  # of hypothesis, without a profile that says otherwise


def examples(count: int) -> int:
    """Return how many to draw where an ordinary run draws ``count``."""
    return count * settings().max_examples // _USUAL
