"""The page ``docs/reference/mqadmin.md``: what each command of mqadmin comes to, as a run of all of them saw it.

Commands, options and words are those of the jar itself (``mqadmin.commands`` of the Java driver); what is tried with
each stands in ``mqadmin_trials``.
"""

import json
import pathlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from interop.clients import Admin, Outgoing, Producer, PushConsumer, Queue
from interop.driver import Driver
from interop.mqadmin_trials import TRIALS, Trial
from interop.servers import Server

WORKS = "works"
TRACE_LIMIT_S = 30.0
_REFUSED = re.compile(r"CODE: (\d+)  DESC: ?(.*?)(?: BROKER: \S+)?$", re.MULTILINE)
_FAMILIES = (
    (range(902, 904), "broker containers"),
    (range(1001, 1019), "a controller"),
    (range(513, 514), "static topics"),
    (range(200_056, 200_057), "leases in RocksDB"),
)
_HEAD = """# mqadmin

What each command of `mqadmin` 5.4.0 does with rocketlet. `make mqadmin` writes this page from the table of commands in
the official jar and from a run of all commands against a broker with topics, groups and members that are online; a test
fails when the page and such a run differ. Options in **bold** are required; each command also takes `-n` and `-h`.

"""


class Option(msgspec.Struct, rename="camel"):
    """An option as the tool describes it; one without a short name has ``null``."""

    name: str
    long_name: str
    required: bool
    takes_value: bool

    @property
    def spelled(self) -> str:
        """The option as it is typed."""
        return f"--{self.long_name}" if self.name == "null" else f"-{self.name}"


class Tool(msgspec.Struct, rename="camel"):
    """A command as it describes itself."""

    name: str
    alias: str
    description: str
    options: list[Option]


class _Tools(msgspec.Struct):
    """What the driver answers."""

    commands: list[Tool]


class Printed(msgspec.Struct):
    """What a command has printed, and what it has thrown."""

    output: str
    errors: str


class Stage(NamedTuple):
    """What the words in the arguments of trials stand for."""

    words: Mapping[str, str]

    def arguments(self, trial: Trial) -> list[str]:
        """Return the arguments of a command."""
        return [*trial.arguments.format(**self.words).split(), "-n", self.words["n"]]

    def pattern(self, trial: Trial) -> str:
        """Return what stands in what is printed when the command works."""
        pattern = trial.shows
        for word, value in self.words.items():
            pattern = pattern.replace(f"{{{word}}}", re.escape(value))
        return pattern


def list_tools(java: Driver) -> list[Tool]:
    """Return the commands of the jar, in its order."""
    return java.call_as(_Tools, "mqadmin.commands").commands


def try_all(java: Driver, server: Server, directory: pathlib.Path) -> dict[str, str]:
    """Run all commands on a fresh server whose traces are on; return what came of each."""
    topic, group, producers = "Trial", "TrialGroup", "TrialProducers"
    made = {"topicName": "TrialListed", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    (directory / "topics.json").write_text(json.dumps([made]))
    (directory / "groups.json").write_text(json.dumps([{"groupName": "TrialListedGroup"}]))
    (directory / "broker.conf").write_text("brokerName=other\n")
    with Admin(java, namesrv=server.namesrv) as admin:
        admin.create_topic(server.broker, topic, 2)
    maker = Producer(java, namesrv=server.namesrv, group=producers, settings={"enableTrace": True})
    reader = PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"})
    with maker as producer, reader as consumer:
        first, _ = producer.send_all(
            topic, Outgoing(b"first", keys=["key"]), Outgoing(b"second"), queue=Queue(topic, "broker-a", 0)
        )
        consumer.received(2)
        words = {"n": server.namesrv, "b": server.broker, "c": "DefaultCluster", "dir": str(directory)}
        words |= {"t": topic, "g": group, "p": producers, "client": consumer.client_id or "", "key": "key"}
        words |= {"id": first.offset_msg_id, "unique": first.msg_id, "trace": "RMQ_SYS_TRACE_TOPIC"}
        stage = Stage(words)
        _wait_for_traces(java, stage)
        return {name: _try(java, name, trial, stage) for name, trial in TRIALS.items()}


def _wait_for_traces(java: Driver, stage: Stage) -> None:
    """Wait until a trace is found: clients send them behind the messages, and an index follows the log."""
    name, until = "queryMsgTraceById", time.monotonic() + TRACE_LIMIT_S
    while _try(java, name, TRIALS[name], stage) != WORKS and time.monotonic() < until:
        pass


def _try(java: Driver, name: str, trial: Trial, stage: Stage) -> str:
    if not trial.shows:
        return trial.note
    printed = java.call_as(Printed, "mqadmin", args=[name, *stage.arguments(trial)])
    if re.search(stage.pattern(trial), printed.output) and "SubCommandException" not in printed.errors:
        return WORKS
    return describe_failure(printed)


def describe_failure(printed: Printed) -> str:
    """Return why a command did not do what it should, without addresses and times."""
    refused = _REFUSED.search(f"{printed.output}\n{printed.errors}")
    if refused is not None:
        code, remark = int(refused[1]), refused[2].strip()
        number = re.match(r"request type (\d+) not supported", remark)
        family = next((what for codes, what in _FAMILIES if number and int(number[1]) in codes), None)
        family = "a controller" if "controllerMode" in remark else family
        return f"refused: `{code} {remark}`" if family is None else f"refused, without {family}: `{remark}`"
    thrown = re.findall(r"^Caused by: [\w.$]+: (.*)$", printed.errors, re.MULTILINE)
    return (
        f"the tool fails: `{thrown[-1]}`" if thrown else f"shows nothing of what was asked: `{printed.output[:80]!r}`"
    )


def format_page(tools: Sequence[Tool], outcomes: Mapping[str, str]) -> str:
    """Return the page."""
    lines = ["| command | options | what it does | with rocketlet |", "|---|---|---|---|"]
    for tool in tools:
        options = " ".join(
            f"**`{option.spelled}`**" if option.required else f"`{option.spelled}`"
            for option in tool.options
            if option.name not in ("h", "n")
        )
        description = tool.description.replace("|", "\\|").strip()
        lines.append(f"| `{tool.name}` | {options} | {description} | {outcomes[tool.name]} |")
    working = sum(outcome == WORKS for outcome in outcomes.values())
    return f"{_HEAD}{working} of {len(tools)} commands work.\n\n" + "\n".join(lines) + "\n"
