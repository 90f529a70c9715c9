"""The page that tells what each request needs."""

import pathlib
import re

from rocketlet.broker.security.needs import STRICT_NEEDS
from rocketlet.broker.settings.security import SecurityConfig
from rocketlet.common.settings import setting_keys

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "security.md"


def test_every_code_and_every_setting_is_on_the_page() -> None:
    """Each code once, in the first column of the table; each key of the settings, some of them in short."""
    text = PAGE.read_text()
    table = text.partition("## What requests need")[2]
    firsts = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ") and line[2].isdigit()]
    codes = [int(number) for first in firsts for number in re.findall(r"\d+", first)]
    assert sorted(codes) == sorted(STRICT_NEEDS)
    in_short = {key for key in setting_keys(SecurityConfig) if key.endswith(("Provider", "Strategy"))}
    assert [key for key in setting_keys(SecurityConfig) - in_short if f"`{key}`" not in text] == []
