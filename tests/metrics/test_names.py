"""Names and labels, held against what boards query and a 5.4.0 broker tells."""

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import pytest
from official_metrics import LEFT_OUT, OFFICIAL, OWN, labels_of

from rocketlet.metrics.exporter import EXPORTER
from rocketlet.metrics.native import NATIVE, format_release

ROOT = pathlib.Path(__file__).parents[2]
FAMILIES = {family.name: family for family in (*NATIVE, *EXPORTER)}
SCRAPE_LABELS = {"Cluster", "Env", "instance", "job"}
"""Those that Prometheus adds; the first two by its configuration, as Apache's board expects it."""
ASKED_OF_CLIENTS = {
    f"rocketmq_client_consume{name}"
    for name in ("_fail_msg_count", "_fail_msg_tps", "_ok_msg_tps", "_rt", "r_pull_rt", "r_pull_tps")
}
"""What the exporter asks clients for; a broker does not."""
UNFILLED = {
    "rocketmq_broker_commitlog_diff",
    "rocketmq_group_consume_tps",
    "rocketmq_group_consume_total_offset",
}
"""What the exporter does not fill, or is about slaves."""


@pytest.mark.parametrize("board", ["rocketmq_exporter", "rocketmq_exporter_overview", "broker_5"])
def test_boards_find_their_metrics(board: str, boards: Mapping[str, Mapping[str, Any]]) -> None:
    """Each metric that a board queries is there, with all labels that it selects, groups or names by."""
    queried = boards[board]
    assert queried.keys() - FAMILIES.keys() <= ASKED_OF_CLIENTS
    missing = {
        name: absent
        for name, labels in queried.items()
        if name in FAMILIES and (absent := {*labels} - {*FAMILIES[name].labels} - SCRAPE_LABELS)
    }
    assert missing == {}


def test_names_do_not_clash() -> None:
    """Both sets have names of their own, also where a counter leaves its end out."""
    names = [
        family.name.removesuffix("_total") if family.is_counter else family.name for family in (*NATIVE, *EXPORTER)
    ]
    assert len(set(names)) == len(names)


def test_own_board_queries_what_is_there() -> None:
    """The board of the examples names metrics and labels that are told."""
    board = json.loads((ROOT / "examples" / "grafana" / "board.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    assert len(queries) > 10
    found = [match for query in queries for match in re.findall(r"(rocket\w+)(?:\{([^}]*)\})?", query)]
    assert {name for name, _ in found} <= FAMILIES.keys()
    for query in queries:
        (family, *_) = (FAMILIES[name] for name, _ in re.findall(r"(rocket\w+)(?:\{([^}]*)\})?", query))
        grouped = [one for each in re.findall(r"\bby \(([^)]*)\)", query) for one in each.split(",")]
        picked = re.findall(r"label_values\([^,]*, *(\w+)\)", query)
        selected = re.findall(r"(\w+)=~?\"", query)
        assert {name.strip() for name in [*grouped, *picked, *selected]} <= {*family.labels}, query


def test_guide_lists_all_names() -> None:
    """The guide has a row for each metric with its labels, and names those that are not there."""
    page = (ROOT / "docs" / "guide" / "metrics.md").read_text()
    absent = ASKED_OF_CLIENTS | LEFT_OUT.keys() | UNFILLED
    assert {*re.findall(r"`(rocket(?:mq|let)_\w+)`", page)} == FAMILIES.keys() | absent
    for name, family in FAMILIES.items():
        row = next(line for line in page.splitlines() if line.startswith("| ") and f"`{name}`" in line)
        if not name.startswith("rocketmq_brokeruntime_"):
            labels = re.findall(r"`(\w+)`", row.rpartition("|")[0].rpartition("|")[2])
            assert labels == [one for one in family.labels if one not in ("cluster", "node_type", "node_id")], name


def test_names_are_those_of_a_5_4_broker() -> None:
    """Each metric of a 5.4.0 broker is there with its kind and labels, or left out for a reason; few are there besides.

    ``tests/interop/test_figures.py`` holds the list against a running one.
    """
    native = {family.name: family for family in NATIVE}
    assert native.keys() == (OFFICIAL.keys() - LEFT_OUT.keys()) | OWN.keys()
    assert (LEFT_OUT.keys() - OFFICIAL.keys(), OWN.keys() & OFFICIAL.keys()) == (set(), set())
    for name in native.keys() - OWN.keys():
        assert native[name].is_counter == (OFFICIAL[name][0] == "counter"), name
        assert {*native[name].labels} == labels_of(name), name


@pytest.mark.parametrize(
    ("version", "name"),
    [(479, "v5_3_3"), (475, "v5_3_1"), (401, "v4_9_4"), (317, "v4_5_2"), (232, "v4_1_0_snapshot"), (121, "121")],
)
def test_release_of_a_client(version: int, name: str) -> None:
    """A client's release is labelled as 5.x brokers do; the ordinals of old ones have no rule."""
    assert format_release(version) == name
