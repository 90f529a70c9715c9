"""The browser that some tests look at pages with."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update"),
    *("--disable-background-networking", "--disable-sync", "--window-size=1280,900"),
)


@pytest.fixture(scope="module")
def home() -> Iterator[pathlib.Path]:
    """Return a folder for Chromium; it keeps a socket in it, and refuses to start where that has a long path."""
    with tempfile.TemporaryDirectory(prefix="chromium-", dir="/tmp") as folder:
        yield pathlib.Path(folder)


@pytest.fixture(scope="module")
def chromium(home: pathlib.Path) -> Iterator[Any]:
    """Run Chromium without a window; half of the driver's types are missing."""
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException

    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or browser is None:
        pytest.skip("Chromium cannot run: install the package chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for switch in (*SWITCHES, f"--user-data-dir={home / 'profile'}"):
        options.add_argument(switch)
    log = home / "chromedriver.log"
    service = webdriver.ChromeService(driver, service_args=["--verbose"], log_output=str(log), env=_environment(home))
    try:
        running = webdriver.Chrome(options, service)
    except WebDriverException as error:
        error.add_note(log.read_text()[-20_000:])  # only there Chromium says why it does not start
        raise
    yield running
    running.quit()


def _environment(home: pathlib.Path) -> dict[str, str]:
    return os.environ | dict.fromkeys(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(home))
