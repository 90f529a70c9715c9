"""The numbers of the wire against those that Java's classes hold."""

import json
import pathlib

from rocketlet.common.codes import VERSION, Release, ResponseCode
from rocketlet.remoting.codec.command import LANGUAGE_NAMES, language_ordinal
from rocketlet.remoting.codec.request_codes import LanguageCode, RequestCode, reads_strict_json


def test_codes_are_javas(vectors: pathlib.Path):
    """Every request, response and language code of 5.4.0 is here under its name, but for those inside Java only."""
    ours = {"RequestCode": RequestCode, "ResponseCode": ResponseCode, "LanguageCode": LanguageCode}
    rows = json.loads((vectors / "codec" / "codes.json").read_text())
    sent = [(kind, name, number) for kind, name, number in rows if number >= 0]
    assert sorted((kind, code.name, code.value) for kind, codes in ours.items() for code in codes) == sorted(sent)


def test_releases_are_javas(vectors: pathlib.Path):
    """Every release that we name has Java's ordinal, and we report the one of 5.3.3."""
    ordinals = dict(json.loads((vectors / "codec" / "versions.json").read_text()))
    assert all(ordinals[release.name] == release for release in Release)
    assert ordinals["V5_3_3"] == VERSION


def test_strict_json_starts_with_4_9_4():
    """A requester of 4.9.4 or later reads quoted integer keys."""
    assert [reads_strict_json(version) for version in (1, 399, 400, 401, 493)] == [False, False, False, True, True]


def test_language_names_stand_at_their_ordinals():
    """The names in JSON and the ordinals in binary headers belong together."""
    assert [language_ordinal(name) for name in LANGUAGE_NAMES] == list(range(len(LanguageCode)))
