"""The table of the control port: which address is which operation, what it takes, and what it answers.

The application, the OpenAPI document and the page of the reference are made from it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from . import answers, requests
from .operations import ControlOperations as Operations

BAD: Final = 400
UNKNOWN: Final = 404
FORBIDDEN: Final = 409
LATE: Final = 504
TAR: Final = "application/x-tar"
STATUSES: Final = {
    BAD: "What is asked cannot be; the text says what is wrong, and where.",
    UNKNOWN: "There is no such topic, group, client, broker, fault or address.",
    FORBIDDEN: "The state forbids it, the broker refuses it, or what was expected is not so.",
    LATE: "What was waited for has not happened in time; the text says what is missing.",
}


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One address of the control port.

    ``body`` is what is asked in JSON, ``query`` what is asked in the address; ``refusals`` are the statuses that an
    answer may have beside success and ``BAD``.
    """

    section: str
    method: str
    path: str
    operation: Callable[..., Awaitable[object]]
    summary: str
    body: Any = None
    query: Any = None
    answer: Any = None
    refusals: tuple[int, ...] = ()
    takes_file: bool = False
    """Whether what is asked is a snapshot, and not JSON."""
    gives_file: bool = False
    """Whether what is answered is one."""

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.operation.__name__

    @property
    def has_number(self) -> bool:
        """Whether its address has the number of something."""
        return "{id}" in self.path


class Section(msgspec.Struct, frozen=True):
    """Addresses that belong together."""

    title: str

    def get(self, path: str, operation: Callable[..., Awaitable[object]], summary: str, **parts: Any) -> Route:
        """Return an address that is looked at."""
        return Route(section=self.title, method="GET", path=path, operation=operation, summary=summary, **parts)

    def post(self, path: str, operation: Callable[..., Awaitable[object]], summary: str, **parts: Any) -> Route:
        """Return an address to which something is said; nothing, in an object, unless told otherwise."""
        parts.setdefault("body", requests.AskedNothing)
        return Route(section=self.title, method="POST", path=path, operation=operation, summary=summary, **parts)

    def put(self, path: str, operation: Callable[..., Awaitable[object]], summary: str, **parts: Any) -> Route:
        """Return an address that takes a file."""
        return Route(section=self.title, method="PUT", path=path, operation=operation, summary=summary, **parts)

    def delete(self, path: str, operation: Callable[..., Awaitable[object]], summary: str, **parts: Any) -> Route:
        """Return an address of what is ended."""
        return Route(section=self.title, method="DELETE", path=path, operation=operation, summary=summary, **parts)


_TESTS = Section("Tests")
_MESSAGES = Section("Topics and messages")
_LOOKS = Section("Looking")
_WAITS = Section("Waiting")
_TIME = Section("Time")
_FAULTS = Section("Faults")
_SERVERS = Section("Servers")
_SNAPSHOTS = Section("Snapshots")

ROUTES: Final = (
    _TESTS.get("/", Operations.addresses, "Which broker this is, and where clients find it.", answer=answers.Addresses),
    _TESTS.post(
        "/test",
        Operations.begin_test,
        "Begin a test: what was asked before is forgotten, and names that are made up begin with its name.",
        body=requests.AskedTest,
        answer=answers.BegunTest,
    ),
    _TESTS.delete(
        "/test",
        Operations.end_test,
        "End the test: what it has injected, stopped, added and cut off is undone, and a clock that was moved goes back"
        " with an empty store. Refused when a fault was not met or the broker has failed inside; it is undone all the"
        " same.",
        refusals=(FORBIDDEN,),
    ),
    _MESSAGES.post(
        "/topics",
        Operations.create_topic,
        "Create a topic.",
        body=requests.AskedTopic,
        answer=answers.Named,
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _MESSAGES.post(
        "/groups",
        Operations.create_group,
        "Create a consumer group and its retry topic.",
        body=requests.AskedGroup,
        answer=answers.Named,
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _MESSAGES.post(
        "/messages",
        Operations.send,
        "Send messages in order.",
        body=list[requests.SentMessage],
        answer=list[answers.SentPlace],
        refusals=(FORBIDDEN,),
    ),
    _MESSAGES.post(
        "/expect",
        Operations.expect,
        "Check that a topic has a message like this, whoever has consumed it. Refused with the nearest messages and"
        " what differs.",
        body=requests.ExpectedSending,
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _LOOKS.get(
        "/messages",
        Operations.messages,
        "What is stored in a topic, by queue and offset, whoever has consumed it.",
        query=requests.AskedMessages,
        answer=list[answers.StoredMessage],
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _LOOKS.get(
        "/lag",
        Operations.lag,
        "How many messages a consumer group wants and is not done with.",
        query=requests.OfGroup,
        answer=answers.Lag,
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _LOOKS.get(
        "/in-flight",
        Operations.in_flight,
        "What members of a consumer group were given and are not done with.",
        query=requests.OfGroup,
        answer=list[answers.StoredMessage],
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _LOOKS.get(
        "/dead-letters",
        Operations.dead_letters,
        "What a consumer group has given up.",
        query=requests.OfGroup,
        answer=list[answers.StoredMessage],
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _LOOKS.get(
        "/transactions",
        Operations.transactions,
        "The transactions that nobody has decided about, the oldest first.",
        query=requests.AtBroker,
        answer=list[answers.Transaction],
        refusals=(UNKNOWN, FORBIDDEN),
    ),
    _LOOKS.get(
        "/requests",
        Operations.seen_requests,
        "What clients have asked the broker and the name server since the test began.",
        query=requests.AskedRequests,
        answer=answers.SeenRequests,
        refusals=(UNKNOWN,),
    ),
    _WAITS.post(
        "/wait/messages",
        Operations.wait_for_messages,
        "Wait until a topic has so many messages; they are answered.",
        body=requests.WaitForMessages,
        answer=list[answers.StoredMessage],
        refusals=(UNKNOWN, FORBIDDEN, LATE),
    ),
    _WAITS.post(
        "/wait/consumed",
        Operations.wait_for_group,
        "Wait until a consumer group has members and is done with all that it subscribes to.",
        body=requests.WaitForGroup,
        refusals=(UNKNOWN, FORBIDDEN, LATE),
    ),
    _WAITS.post(
        "/wait/idle",
        Operations.wait_for_idle,
        "Wait until each consumer group that has members is done with all that it subscribes to.",
        body=requests.WaitForIdle,
        refusals=(UNKNOWN, FORBIDDEN, LATE),
    ),
    _TIME.get("/clock", Operations.clock, "What the broker's clock shows.", answer=answers.ClockState),
    _TIME.post(
        "/clock/advance",
        Operations.advance,
        "Move time on, and let happen in order what happens on the way: delays, timers, retries, checks of"
        " transactions, retention. Clients in other processes go by their own clocks.",
        body=requests.AskedSpan,
        answer=answers.ClockState,
    ),
    _TIME.post("/clock/freeze", Operations.freeze, "Let time stand still.", answer=answers.ClockState),
    _TIME.post("/clock/resume", Operations.resume, "Let time go on.", answer=answers.ClockState),
    _FAULTS.post(
        "/faults",
        Operations.add_fault,
        "Let something go wrong with the next requests that fit, or with the disk, until the test ends.",
        body=requests.AskedFault,
        answer=answers.FaultState,
        refusals=(UNKNOWN,),
    ),
    _FAULTS.get("/faults", Operations.faults, "The faults that were added.", answer=list[answers.FaultState]),
    _FAULTS.get(
        "/faults/{id}",
        Operations.fault,
        "One fault, and how often it was met.",
        answer=answers.FaultState,
        refusals=(UNKNOWN,),
    ),
    _FAULTS.post(
        "/faults/{id}/wait",
        Operations.wait_for_hits,
        "Wait until a fault was met so often.",
        body=requests.WaitForHits,
        answer=answers.FaultState,
        refusals=(UNKNOWN, LATE),
    ),
    _FAULTS.delete(
        "/faults/{id}",
        Operations.remove_fault,
        "End a fault. That nothing has met it is told at the end of the test.",
        answer=answers.FaultState,
        refusals=(UNKNOWN,),
    ),
    _FAULTS.post(
        "/partitions",
        Operations.cut_off,
        "Let nothing pass between a client and the broker, in either direction; sockets stay open.",
        body=requests.AskedPartition,
        answer=answers.Cut,
        refusals=(UNKNOWN,),
    ),
    _FAULTS.delete("/partitions/{id}", Operations.heal, "Let pass what was held back.", refusals=(UNKNOWN,)),
    _SERVERS.post(
        "/broker/stop",
        Operations.stop_broker,
        "Stop the broker cleanly.",
        body=requests.AtBroker,
        refusals=(UNKNOWN,),
    ),
    _SERVERS.post(
        "/broker/kill",
        Operations.kill_broker,
        "End the broker as SIGKILL does: nothing more is written, no table saved, connections are reset.",
        body=requests.AtBroker,
        refusals=(UNKNOWN,),
    ),
    _SERVERS.post(
        "/broker/restart",
        Operations.restart_broker,
        "Start the broker on the same ports and the same store, after a clean stop if it still runs.",
        body=requests.AtBroker,
        refusals=(UNKNOWN,),
    ),
    _SERVERS.post(
        "/broker/reset",
        Operations.reset_broker,
        "Empty the broker: messages, topics, groups and offsets are gone, and it has the machine's time again.",
        body=requests.AtBroker,
        refusals=(UNKNOWN,),
    ),
    _SERVERS.post("/nameserver/stop", Operations.stop_nameserver, "Stop the name server."),
    _SERVERS.post(
        "/nameserver/start", Operations.start_nameserver, "Start the name server where it was; the brokers register."
    ),
    _SERVERS.post(
        "/brokers",
        Operations.add_broker,
        "Start one more broker at the same name server, with a store of its own, until the test ends.",
        body=requests.AskedBroker,
        answer=answers.Addresses,
    ),
    _SNAPSHOTS.get(
        "/snapshot",
        Operations.save_snapshot,
        "All that the broker keeps, in one small file: messages, topics, groups, offsets. The broker is stopped"
        " meanwhile, and clients connect anew.",
        gives_file=True,
    ),
    _SNAPSHOTS.put(
        "/snapshot",
        Operations.restore_snapshot,
        "Put the broker into the state of a snapshot, at the machine's time; clients connect anew. What is no snapshot,"
        " or that of a store with other settings, leaves it as it was.",
        takes_file=True,
    ),
)
