"""Bad requests to the name server, each answered as by the official 5.4.0 (``tests/interop/record_bad_input.py``)."""

import pathlib

import pytest
from badinput import deviations
from badinput.replaying import handled_codes, load_recording, replay
from badinput.samples import prepare_nameserver
from raw_calls import Caller

from rocketlet.namesrv.server import NameServer


@pytest.mark.feature("N22")
async def test_bad_requests_are_answered_as_by_java(
    vectors: pathlib.Path, nameserver: NameServer, caller: Caller
) -> None:
    """Missing, empty, over-long, negative and mistyped fields and bodies get Java's codes and remarks.

    The rules and the listed deviations are in ``badinput``. The name server goes on after them all.
    """
    await prepare_nameserver(caller)
    handled = await handled_codes(caller)
    recorded = load_recording(vectors, "namesrv")
    differences = await replay(nameserver.address, recorded, handled, deviations.NAME_SERVER)
    assert differences == [], "\n".join(differences)
    await prepare_nameserver(caller)


async def test_every_code_has_its_bad_requests(vectors: pathlib.Path, caller: Caller) -> None:
    """There is a recording of bad requests for each request code that is handled."""
    assert await handled_codes(caller) == {case.code for case in load_recording(vectors, "namesrv")}
