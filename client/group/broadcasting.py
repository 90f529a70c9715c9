"""Broadcasting: every member of the group has every queue, and keeps its offsets itself (``local_offsets.py``)."""

from ..session.brokers import Brokers
from ..session.session import Session


class LoneBrokers(Brokers):
    """The brokers as a broadcasting consumer sees them: it is alone in its group, so it gets all queues."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._client_id = session.client_id

    async def members_of(self, group: str, topic: str) -> list[str]:
        """Return one member."""
        return [self._client_id]
