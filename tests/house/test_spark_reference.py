"""The reference of the Spark source and sink is whole."""

import pathlib
import re

import pytest

from rocketlet.export.columns.schema import FULL_SCHEMA
from rocketlet.export.columns.system_columns import state_of
from rocketlet.export.write.pulled_reader import BROKER_COLUMN
from rocketlet.spark.cluster import cluster_options as liveoptions
from rocketlet.spark.hybrid import read_modes as hybridoptions
from rocketlet.spark.options import cluster_access as access
from rocketlet.spark.options import store_options as storeoptions
from rocketlet.spark.sink import sink_options as sinkoptions
from rocketlet.spark.sink.sink_rows import COLUMNS as SINK_COLUMNS
from rocketlet.spark.stream import stream_options as streamoptions

Table = list[list[str]]
TYPES = {
    "string": "string", "int32": "int", "int64": "bigint", "binary": "binary", "timestamp[us, tz=UTC]": "timestamp",
    "list<element: string not null>": "array of strings", "map<string, string>": "map of strings",
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(checkout: pathlib.Path) -> dict[str, list[Table]]:
    """Return the tables of each section of the page, without their heads."""
    page = (checkout / "docs" / "reference" / "spark.md").read_text()
    parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    return {
        title: [parse(match[0]) for match in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE)]
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def parse(table: str) -> Table:
    """Return the cells of a table, without its head and without the marks of code."""
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return rows[2:]


@pytest.mark.parametrize(
    ("title", "number", "names"),
    [
        ("Stores", 0, set(storeoptions.STORE_OPTIONS)),
        ("A cluster", 0, set(liveoptions.CLUSTER_OPTIONS) - set(access.ACCESS_OPTIONS)),
        ("A cluster", 1, set(access.ACCESS_OPTIONS)),
        ("A stream", 0, set(streamoptions.STREAM_OPTIONS)),
        ("Stores and their cluster", 0, set(hybridoptions.HYBRID_OPTIONS)),
        ("Writing", 0, set(sinkoptions.SINK_OPTIONS) - set(access.ACCESS_OPTIONS)),
        ("Writing", 1, set(SINK_COLUMNS)),
    ],
)
def test_each_option_is_in_the_reference(
    tables: dict[str, list[Table]], title: str, number: int, names: set[str]
) -> None:
    """A table lists the options of its part, or the columns that the sink takes, each once and no others."""
    listed = [row[0] for row in tables[title][number]]
    assert len(listed) == len(set(listed))
    assert set(listed) == names


def test_options_that_do_not_fit_the_sink_are_marked(tables: dict[str, list[Table]]) -> None:
    """Of the options by which a cluster is reached, those that are not for writing say so."""
    marked = {name for name, _, meaning in tables["A cluster"][1] if "not for writing" in meaning}
    assert marked == set(access.ACCESS_OPTIONS) - set(sinkoptions.SINK_OPTIONS)


def test_each_column_is_in_the_reference(tables: dict[str, list[Table]]) -> None:
    """The page lists the columns in their order, with the types that they have in Spark."""
    listed = [(name, kind) for name, kind, _ in tables["Columns"][0]]
    assert listed == [*((field.name, TYPES[str(field.type)]) for field in FULL_SCHEMA), (BROKER_COLUMN, "string")]


def test_states_are_those_of_the_topics(tables: dict[str, list[Table]]) -> None:
    """The page names the state that messages in a topic have."""
    topics = {topic.replace("…", "group").replace("other system topics", "rmq_sys_x"): state
              for topic, state, *_ in tables["Columns"][1]}  # fmt: skip
    assert {topic: state_of(topic) for topic in topics} == {
        topic: state.partition(";")[0] for topic, state in topics.items()
    }
