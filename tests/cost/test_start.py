"""What a start imports: the larger part of the time that it takes (`python bench/start.py`)."""

import importlib
import re
from typing import Final

import pytest
from command_line import Start

MOST_MODULES: Final = 178
"""Of rocketlet; each takes about 0.2 ms of a start. It is changed only on purpose."""
NEVER: Final = (
    *("numpy", "pyarrow", "rich", "zstandard", "prometheus_client", "jinja2", "difflib", "json", "importlib.metadata"),
    *("rocketlet.client", "rocketlet.export", "rocketlet.metrics", "rocketlet.console", "rocketlet.cli.verbs"),
    *("rocketlet.cli.control", "rocketlet.testing", "starlette", "uvicorn", "rocketlet.proxy", "hpack"),
    *("rocketlet.broker.admin_components", "rocketlet.broker.admin.handlers", "rocketlet.broker.admin.report_handlers"),
    *("rocketlet.common.subscriptions.sql_filter", "rocketlet.store.audit"),
)
STILL_DATACLASSES: Final = {"Message", "ReceivedMessage"}
"""What applications replace and compare is a dataclass for them (`dataclasses.replace`)."""


@pytest.fixture
def imported(start: Start) -> set[str]:
    """Return the modules that `rocketlet up` has imported when it is ready, and until it has stopped."""
    running = start("up", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0", PYTHONPROFILEIMPORTTIME="1")
    return set(re.findall(r"\| +([\w.]+)$", running.stop()[2], flags=re.MULTILINE))


def test_start_imports_what_it_needs(imported: set[str]):
    """A started broker has imported no more modules than before, nothing heavy, and nothing for later questions."""
    own = {name for name in imported if name.partition(".")[0] == "rocketlet"}
    assert "rocketlet.broker.server" in own
    assert not imported.intersection(NEVER)
    assert len(own) <= MOST_MODULES, sorted(own)


def test_start_compiles_no_dataclasses(imported: set[str]):
    """What a start imports are structs, named tuples and plain classes: a frozen dataclass takes half a millisecond."""
    modules = [importlib.import_module(name) for name in sorted(imported) if name.startswith("rocketlet.")]
    own = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    found = {each.__name__ for each in own if "__dataclass_fields__" in vars(each)}
    assert found == STILL_DATACLASSES
