"""Wrong signatures are counted by address."""

from rocketlet.broker.security.failed_tries import MOST_ADDRESSES, MOST_TRIES, PERIOD_MS, FailedTries
from rocketlet.testing.manual_clock import ManualClock


def fail(tries: FailedTries, address: str, count: int) -> list[bool]:
    """Note so many wrong signatures."""
    return [tries.note(address) for _ in range(count)]


def test_address_is_shut_out_for_the_rest_of_a_period() -> None:
    """From the last that may come until the period of the first one is over."""
    clock = ManualClock()
    tries = FailedTries(clock)
    assert fail(tries, "10.0.0.1", MOST_TRIES - 1) == [False] * (MOST_TRIES - 1)
    clock.advance(PERIOD_MS - 1)
    assert not tries.is_blocked("10.0.0.1")
    assert fail(tries, "10.0.0.1", 3) == [True, False, False]
    assert tries.is_blocked("10.0.0.1")
    assert not tries.is_blocked("10.0.0.2")
    clock.advance(1)
    assert not tries.is_blocked("10.0.0.1")
    assert not tries.blocked
    assert fail(tries, "10.0.0.1", MOST_TRIES)[-1]


def test_quiet_address_begins_anew() -> None:
    """What came in an earlier period does not count."""
    clock = ManualClock()
    tries = FailedTries(clock)
    fail(tries, "10.0.0.1", MOST_TRIES - 1)
    clock.advance(PERIOD_MS)
    assert not any(fail(tries, "10.0.0.1", MOST_TRIES - 1))


def test_neighbours_in_ipv6_count_together() -> None:
    """By their first 64 bits; an address of IPv4 in the form of IPv6 is one of IPv4."""
    tries = FailedTries(ManualClock())
    fail(tries, "2001:db8::1", MOST_TRIES - 1)
    assert fail(tries, "2001:db8::2:3", 1) == [True]
    assert tries.is_blocked("2001:db8::ffff:1")
    assert not tries.is_blocked("2001:db8:0:1::1")
    fail(tries, "::ffff:10.0.0.1", MOST_TRIES)
    assert tries.is_blocked("10.0.0.1")
    fail(tries, "fe80::1%eth0", MOST_TRIES)
    assert tries.is_blocked("fe80::2%eth0")
    assert not fail(tries, "no:address", 1)[0]


def test_table_is_bounded() -> None:
    """Who has been quiet for longest is forgotten, also that it was shut out."""
    tries = FailedTries(ManualClock())
    fail(tries, "first", MOST_TRIES)
    for number in range(MOST_ADDRESSES):
        tries.note(f"10.{number}")
    assert repr(tries) == f"<FailedTries of {MOST_ADDRESSES} addresses, 0 blocked>"
