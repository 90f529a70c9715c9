"""Handles by which timer messages are recalled."""

import json
import pathlib

import pytest

from rocketlet.common.errors import DecodeError
from rocketlet.common.ids import RecallHandle, format_recall_handle, parse_recall_handle


@pytest.mark.feature("L8")
def test_handles_are_those_of_java(vectors: pathlib.Path) -> None:
    """Our text of a handle is that of the official class, and is read again as it was."""
    cases = [case for case in json.loads((vectors / "codec/ids.json").read_text()) if case["kind"] == "recallHandle"]
    assert len(cases) == 2
    for case in cases:
        handle = RecallHandle(case["topic"], case["brokerName"], case["timestamp"], case["messageId"])
        assert format_recall_handle(handle) == case["handle"]
        assert parse_recall_handle(case["handle"]) == handle
        assert parse_recall_handle(case["handle"].rstrip("=")) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "djEgYSBi",  # v1 a b
        "djIgYSBiIDEgYw==",  # v2 a b 1 c
        "djEgYSBiIDEg",  # v1 a b 1 and nothing behind
        "djEgYSBiIDEgYw===",
        "djEgYSBiIDEgY+==",
        "djEgYSBiIDEgYw==\n",
        "d",
        "äöü",
        "====",
    ],
)
def test_what_is_no_handle(text: str) -> None:
    """Another version, too few words, and what is not base64 of URLs are refused in Java's words."""
    with pytest.raises(DecodeError, match=r"^recall handle is invalid$"):
        parse_recall_handle(text)


def test_more_words_are_passed_over() -> None:
    """Java takes the first five words."""
    assert parse_recall_handle("djEgYSBiIDEgYyBk") == RecallHandle("a", "b", "1", "c")
