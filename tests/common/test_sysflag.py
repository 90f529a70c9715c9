import pytest

from rocketlet.common import sysflag


@pytest.mark.parametrize(
    ("flag", "kind", "is_queued"), [(0x0, 0x0, True), (0x4, 0x4, False), (0x8, 0x8, True), (0xC, 0xC, False)]
)
def test_transaction_bits_are_compared_together(flag: int, kind: int, is_queued: bool) -> None:
    """Records without transaction and committed ones are queued; prepared and rolled back ones are not."""
    assert sysflag.transaction_type(flag | 0x331) == kind
    assert sysflag.is_queued(flag | 0x331) == is_queued
