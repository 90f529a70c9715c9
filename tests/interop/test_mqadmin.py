"""Each command of mqadmin 5.4.0, tried on our broker: the page about them says what came of it."""

import pathlib
import re
from collections.abc import Callable

import pytest
from interop.mqadmin_page import WORKS, format_page, list_tools, try_all
from interop.mqadmin_trials import TRIALS
from interop.servers import JavaServer, Server
from interop.versions import JavaDriver

StartServer = Callable[..., Server]
_AUTH = "org.apache.rocketmq.auth"
KEEPS_USERS = {
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}
"""Without them the official broker has no place for users."""
FAILS_IN_THE_TOOL = {"exportMetadata", "exportMetrics"}
"""Of 5.4.0: its JSON library cannot write their own files, whatever broker is asked."""


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "mqadmin.md"


@pytest.fixture
def page() -> str:
    """Return the committed page, nothing while there is none."""
    return PAGE.read_text() if PAGE.exists() else ""


def test_page_has_every_command_and_option(java: JavaDriver, page: str) -> None:
    """Names, options and descriptions are those of the jar, and each command is tried or has a reason."""
    tools = list_tools(java)
    assert len(tools) >= 85
    assert {tool.name for tool in tools} == TRIALS.keys()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE))
    assert format_page(tools, rows) == page
    assert not [name for name, outcome in rows.items() if "unknown" in outcome.lower() or not outcome]


@pytest.mark.feature("A10", "A11", "D1", "D2", "D3", "D12", "D13", "D16", "D18", "D19")
@pytest.mark.timeout(300)
def test_every_command_does_what_the_page_says(
    request: pytest.FixtureRequest, java: JavaDriver, fresh_server: StartServer, tmp_path: pathlib.Path, page: str
) -> None:
    """All commands run one after the other; with ``--mqadmin-page FILE`` the page is written instead."""
    server = fresh_server(traceTopicEnable="true")
    if isinstance(server, JavaServer):
        pytest.skip("the page is about our broker; the test below tries the official one")
    tools = list_tools(java)
    outcomes = try_all(java, server, tmp_path)
    fresh = format_page(tools, outcomes)
    target: pathlib.Path | None = request.config.getoption("--mqadmin-page")
    if target is not None:
        target.write_text(fresh)
    else:
        assert fresh == page


@pytest.mark.timeout(300)
def test_what_works_here_works_with_the_official_broker(
    java: JavaDriver, java_broker: StartServer, tmp_path: pathlib.Path, page: str
) -> None:
    """The trials are right: the official broker passes all that ours does, but where the tool itself fails."""
    files = tmp_path / "files"
    files.mkdir()
    official = try_all(java, java_broker(tmp_path / "store", traceTopicEnable="true", **KEEPS_USERS), files)
    ours = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE))
    works_here = {name for name, outcome in ours.items() if outcome == WORKS}
    assert works_here - {name for name, outcome in official.items() if outcome == WORKS} <= FAILS_IN_THE_TOOL
