"""Bad requests to the broker, each answered as by the official 5.4.0 (``tests/interop/record_bad_input.py``)."""

import pathlib

import pytest
from badinput import deviations
from badinput.replaying import handled_codes, load_recording, replay
from badinput.samples import SETTINGS_OF_BROKER, prepare_broker
from raw_calls import Caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings with the names and settings of the recorded broker."""
    return {**settings, **SETTINGS_OF_BROKER, "brokerClusterName": "DefaultCluster"}


async def test_bad_requests_are_answered_as_by_java(vectors: pathlib.Path, broker: Broker, caller: Caller) -> None:
    """Missing, empty, over-long, negative and mistyped fields and bodies get Java's codes and remarks.

    The rules and the listed deviations are in ``badinput``. The broker goes on after them all.
    """
    await prepare_broker(caller)
    handled = await handled_codes(caller)
    differences = await replay(broker.address, load_recording(vectors, "broker"), handled, deviations.BROKER)
    assert differences == [], "\n".join(differences)
    assert (await caller.send()).code == ResponseCode.SUCCESS


async def test_every_code_has_its_bad_requests(vectors: pathlib.Path, caller: Caller) -> None:
    """There is a recording of bad requests for each request code that is handled; the others are answered 3."""
    assert await handled_codes(caller) <= {case.code for case in load_recording(vectors, "broker")}
