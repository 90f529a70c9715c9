"""Says once that a broker does not answer, and once that it does again, however often it is asked in between."""

import logging

from ...common.errors import RemotingError
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command

log = logging.getLogger(__name__)


class Outages:
    """The brokers that have not answered the last time."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    def __repr__(self) -> str:
        return f"<Outages {sorted(self._silent)}>"

    def begin(self, address: str, error: RemotingError) -> None:
        """Note that a broker did not answer."""
        level = logging.DEBUG if address in self._silent else logging.WARNING
        log.log(level, "broker %s does not answer: %s", address, error)
        self._silent.add(address)

    def heed(self, address: str, answer: Command) -> None:
        """Note that a broker has answered, and warn of an answer that is an error."""
        if address in self._silent:
            self._silent.discard(address)
            log.info("broker %s answers again", address)
        if answer.code != ResponseCode.SUCCESS:
            log.warning("broker %s answered a heartbeat with %d: %s", address, answer.code, answer.remark)
