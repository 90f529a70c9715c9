"""The bank of the tests, which says what it is told to."""

from shop import Charge, Order


class ScriptedBank:
    """Accepts payments unless ``answer`` is another one; ``payments`` has the number of each order's last payment."""

    def __init__(self) -> None:
        self.answer = Charge.ACCEPTED
        self.payments: dict[str, str] = {}

    def charge(self, order: Order, payment: str) -> Charge:
        """Say what is wanted."""
        self.payments[order.id] = payment
        return self.answer
