"""Faults as values: what shall go wrong, with which requests, how often.

    answer=ResponseCode.…     answered so, and not served
    answer=Fault.DROP         neither served nor answered
    answer=Fault.CLOSE        not served, and the connection is closed behind the answers to what came before
    answer=Fault.LOSE_ANSWER  served, and the answer never arrives
    delay_ms=500              served, or what ``answer`` says, once so much has passed on the broker's clock

Of several faults that fit a request the one that was added first, and is not used up, is done to it; the others do not
hear of it. A fault that nothing has met when it ends fails the test: a misspelt topic would else let it pass.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from ...common.codes import ResponseCode
from ..views.client_requests import RecordedRequest, RequestLog
from ..views.operations import BETWEEN_SERVERS, codes_of
from .disk_faults import DiskFault, DiskFaults
from .hits import ActiveFault, RunOnLoop

_TOLD_REQUESTS: Final = 20


class Fault(Enum):
    """What may become of a request beside another answer."""

    DROP = "dropped"
    CLOSE = "its connection closed"
    LOSE_ANSWER = "served, its answer lost"


class FaultRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests meet a fault, how many of them, and what it is."""

    on: str | None
    codes: frozenset[int] | None
    topic: str | None
    group: str | None
    client: str | None
    times: int | None
    after: int
    answer: int | Fault | None
    remark: str | None
    delay_ms: int

    def __str__(self) -> str:
        """Return the rule in words."""
        words = [self.on or "any request"]
        words += [f"of topic {self.topic}"] if self.topic else []
        words += [f"of group {self.group}"] if self.group else []
        words += [f"by client {self.client}"] if self.client else []
        words += [f"after the first {self.after}"] if self.after else []
        return f"{' '.join(words)}: {self._describe_fault()}"

    def _describe_fault(self) -> str:
        if isinstance(self.answer, Fault):
            done = self.answer.value
        elif self.answer is not None:
            name = self.answer.name if isinstance(self.answer, ResponseCode) else str(self.answer)
            done = f"answered {name}"
        else:
            return f"{self.delay_ms} ms late"
        return f"{done}, {self.delay_ms} ms late" if self.delay_ms else done

    def fits(self, request: RecordedRequest) -> bool:
        """Tell whether a request is meant."""
        if request.code in BETWEEN_SERVERS if self.codes is None else request.code not in self.codes:
            return False
        return (
            (self.topic is None or self.topic in request.named.topics)
            and (self.group is None or self.group in request.named.groups)
            and (self.client is None or self.client == request.client)
        )


class InjectedFault(ActiveFault):
    """A fault that was added.

    As a context manager it ends with the block, which fails if nothing has met it.
    """

    def __init__(self, rule: FaultRule, book: "FaultBook", run: RunOnLoop, *, optional: bool) -> None:
        super().__init__(run, optional=optional)
        self.rule = rule
        self._seen = 0
        self._book = book
        self._run = run

    def __repr__(self) -> str:
        return f"<InjectedFault {self}>"

    def __str__(self) -> str:
        """Return the fault in words, and how often it was met."""
        times = "" if self.rule.times is None else f" of {self.rule.times}"
        return f"{self.rule}, met {self.hits}{times} times"

    @property
    def complaint(self) -> str:
        """What is wrong with it if nothing has met it."""
        return f"no request has met the fault: {self.rule}"

    def _end(self, *, is_told: bool) -> None:
        self._run(lambda: self._book.forget(self) if is_told else self._book.remove(self))

    def meet(self, request: RecordedRequest) -> bool:
        """Tell whether a request meets it, and count."""
        rule = self.rule
        if not rule.fits(request) or (rule.times is not None and self.hits >= rule.times):
            return False
        self._seen += 1
        if self._seen <= rule.after:
            return False
        self.hit()
        return True


class FaultBook:
    """The faults that are at work, and those that have ended without having been met; lives on the broker's loop."""

    def __init__(self) -> None:
        self._active: list[InjectedFault] = []
        self._unmet: list[InjectedFault] = []

    def __repr__(self) -> str:
        return f"<FaultBook of {len(self._active)} faults>"

    def add(self, fault: InjectedFault) -> None:
        """Let requests meet a fault from now on."""
        self._active.append(fault)

    def remove(self, fault: InjectedFault) -> None:
        """End a fault; once is enough."""
        if fault in self._active:
            self._active.remove(fault)
            if fault.is_unmet:
                self._unmet.append(fault)

    def forget(self, fault: InjectedFault) -> None:
        """End a fault of which nobody shall hear at the end of the test."""
        if fault in self._active:
            self._active.remove(fault)

    def meet(self, request: RecordedRequest) -> InjectedFault | None:
        """Return the fault that a request meets."""
        return next((fault for fault in self._active if fault.meet(request)), None)

    def end(self) -> Sequence[InjectedFault]:
        """End all, and return those that nothing has met."""
        for fault in list(self._active):
            self.remove(fault)
        unmet, self._unmet = self._unmet, []
        return unmet


class Faults:
    """The faults of one broker and, of the first broker, of its name server; they end with the test."""

    def __init__(self, book: FaultBook, log: RequestLog, disk: DiskFaults | None, run: RunOnLoop) -> None:
        self._book = book
        self._log = log
        self._disk = disk
        self._run = run

    def __repr__(self) -> str:
        return repr(self._book)

    def add(
        self,
        on: str | None = None,
        *,
        answer: int | Fault | None = None,
        remark: str | None = None,
        delay_ms: int = 0,
        topic: str | None = None,
        group: str | None = None,
        client: str | None = None,
        times: int | None = 1,
        after: int = 0,
        optional: bool = False,
    ) -> InjectedFault:
        """Let something go wrong with the next ``times`` requests that fit, beside the first ``after``; None: with all.

        ``on`` is an operation ("send", "pull", "commit_offset", "route": ``rocketlet.testing.views.operations``); None
        stands for whatever clients ask. ``client`` is a client id; a connection is known by its first heartbeat. Unless
        the fault is ``optional``, the test fails if no request meets it.

        Raises:
            ValueError: there is no such operation, or the arguments contradict each other.
        """
        codes = None if on is None else codes_of(on)
        rule = FaultRule(
            on=on,
            codes=codes,
            topic=topic,
            group=group,
            client=client,
            times=times,
            after=after,
            answer=answer,
            remark=remark,
            delay_ms=delay_ms,
        )
        _check(rule)
        fault = InjectedFault(rule, self._book, self._run, optional=optional)
        self._run(lambda: self._book.add(fault))
        return fault

    def disk_full(self, *, optional: bool = False) -> DiskFault:
        """Let the disk take no bytes more, until the block or the test ends: sends are answered SERVICE_NOT_AVAILABLE.

        Raises:
            TypeError: the broker was given files of its own.
        """
        return self._run(lambda: self._own_disk().add("full", optional=optional))

    def slow_disk(self, delay_ms: int, *, optional: bool = False) -> DiskFault:
        """Let each flush take so long on the broker's clock; sends wait for flushes with ``flushDiskType=SYNC_FLUSH``.

        Raises:
            TypeError: the broker was given files of its own.
            ValueError: the time is none.
        """
        if delay_ms < 1:
            raise ValueError(f"delay_ms is {delay_ms}, the least is 1")
        return self._run(lambda: self._own_disk().add("slow", delay_ms, optional=optional))

    def failing_flush(self, *, optional: bool = False) -> DiskFault:
        """Let each flush fail: the store takes no writes from the first on until the broker is restarted.

        A broker to which this has happened is restarted at the end of the test.

        Raises:
            TypeError: the broker was given files of its own.
        """
        return self._run(lambda: self._own_disk().add("failing", optional=optional))

    def _own_disk(self) -> DiskFaults:
        if self._disk is None:
            raise TypeError("this broker was given files of its own: derive them from rocketlet.testing.DiskFaults")
        return self._disk

    # on the broker's loop

    def end(self) -> list[str]:
        """End all, and return what is wrong with those that nothing has met."""
        unmet = [fault.complaint for fault in self._book.end()]
        if unmet:
            lines = list(self._log.find().lines())
            came = "\n  ".join(["what came:", *lines[-_TOLD_REQUESTS:]]) if lines else "no request came"
            unmet.append(came)
        if self._disk is not None:
            unmet += [fault.complaint for fault in self._disk.end()]
        return unmet


def _check(rule: FaultRule) -> None:
    answer, delay_ms = rule.answer, rule.delay_ms
    if answer is None and not delay_ms:
        raise ValueError("nothing is to go wrong: give an answer, or delay_ms")
    if delay_ms < 0:
        raise ValueError(f"delay_ms is {delay_ms}, the least is 0")
    if answer is Fault.DROP and delay_ms:
        raise ValueError(f"a request that is dropped cannot be {delay_ms} ms late")
    if rule.remark is not None and (answer is None or isinstance(answer, Fault)):
        raise ValueError(f"the remark {rule.remark!r} goes with a response code")
    if rule.times is not None and rule.times < 1:
        raise ValueError(f"times is {rule.times}: a fault happens once at least, or always (None)")
    if rule.after < 0:
        raise ValueError(f"after is {rule.after}, the least is 0")
