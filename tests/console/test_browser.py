"""The console in a browser: links, forms, keys, fresh figures, light and dark.

``ROCKETLET_SCREENSHOTS=docs/guide/images pytest tests/console/test_browser.py`` keeps the pictures of the guide.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from command_line import Running, Start
from selenium.common.exceptions import JavascriptException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from rocketlet.client import ConsumeFrom, Message, Producer, PullConsumer, PullConsumerSettings

LIMIT_S = 60


class Window:
    """The browser at a console."""

    def __init__(self, chromium: Any, url: str) -> None:
        self.chromium = chromium
        self._url = url.rstrip("/")

    def open(self, path: str) -> None:
        """Go to a page of the console."""
        self.chromium.get(self._url + path)

    def find(self, selector: str) -> Any:
        """Return the first element of a CSS selector."""
        return self.chromium.find_element(By.CSS_SELECTOR, selector)

    def follow(self, link: str) -> None:
        """Click a link."""
        self.chromium.find_element(By.LINK_TEXT, link).click()

    @property
    def words(self) -> str:
        """The text that is seen, asked for at once: between two questions the page may be another one."""
        return self.chromium.execute_script("return document.querySelector('main')?.innerText ?? ''")

    def wait_for(self, text: str) -> None:
        """Wait until a text is seen."""
        wait = WebDriverWait(self.chromium, LIMIT_S, ignored_exceptions=[JavascriptException])  # the page is leaving
        wait.until(lambda _: text in self.words)

    def keep(self, name: str) -> None:
        """Keep a picture of what is seen, if pictures are wanted."""
        folder = os.environ.get("ROCKETLET_SCREENSHOTS")
        if folder:
            self.chromium.save_screenshot(str(pathlib.Path(folder, f"console-{name}.png")))


@pytest.fixture
def cluster(start: Start) -> Running:
    """Run ``rocketlet up`` with its console."""
    return start("up", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0", "--console-port", "0")


@pytest.fixture
def window(cluster: Running, chromium: Any) -> Iterator[Window]:
    """Yield the browser at the console of that cluster; it leaves before that is gone."""
    yield Window(chromium, cluster.addresses["console"])
    chromium.get("about:blank")
    chromium.get_log("browser")


@pytest.fixture
async def orders(cluster: Running) -> None:
    """Store three orders, of which a group has consumed some."""
    nameserver = cluster.addresses["namesrv"]
    async with Producer("shop", nameserver) as producer:
        for number in range(3):
            body = b'{"order": %d, "amount": 12.50, "items": ["tea", "cup"]}' % number
            await producer.send(Message("orders", body, tags="paid", keys=[f"order-{number}"]))
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
    async with PullConsumer("billing", nameserver, settings=settings) as consumer:
        consumer.subscribe("orders")
        await anext(consumer)


@pytest.mark.usefixtures("orders")
def test_message_is_sent_and_found(window: Window) -> None:
    """From the list to the topic, through the form to the message that it sent."""
    window.open("/")
    window.keep("topics")
    window.follow("orders")
    window.keep("topic")
    window.find("textarea[name=body]").send_keys('{"order": 3, "note": "<b>&"}')
    window.find("input[name=tags]").send_keys("created")
    window.find("form.fields button").click()
    window.wait_for("is stored: ")
    window.follow("Look at messages")
    window.find("input[name=tags]").send_keys("created", Keys.ENTER)
    window.wait_for("created")
    window.keep("messages")
    window.find("tbody a").click()
    window.wait_for('"note": "<b>&"')
    window.keep("message")


@pytest.mark.usefixtures("orders")
def test_group_is_moved_only_when_that_is_confirmed(window: Window) -> None:
    """The form does not leave the page before somebody says yes."""
    window.open("/groups/billing")
    window.keep("group")
    window.find("input[value=begin]").click()
    window.find("form.fields button").click()
    assert window.chromium.current_url.endswith("/groups/billing")
    assert "goes on" not in window.words
    window.find("input[type=checkbox]").click()
    window.find("form.fields button").click()
    window.wait_for("Group billing goes on in")


@pytest.mark.usefixtures("orders")
async def test_figures_stay_fresh(window: Window, cluster: Running) -> None:
    """What arrives is seen without a key pressed; a field that somebody writes in is left alone."""
    window.open("/topics/orders")
    window.find("input[name=tags]").send_keys("half wri")
    async with Producer("shop", cluster.addresses["namesrv"]) as producer:
        for _ in range(40):
            await producer.send(Message("orders", b"x"))
    cells = "document.querySelectorAll('table[data-fresh]')[1].querySelectorAll('td:nth-child(3)')"
    shown = f"return [...{cells}].reduce((sum, cell) => sum + Number(cell.innerText), 0)"
    WebDriverWait(window.chromium, LIMIT_S).until(lambda driver: driver.execute_script(shown) == 43)
    assert window.find("input[name=tags]").get_attribute("value") == "half wri"


@pytest.mark.usefixtures("orders")
def test_keys_are_enough(window: Window) -> None:
    """The first key leads past the head, "/" to the search field, Enter to what was found."""
    window.open("/groups")
    window.find("h1").click()
    window.find("body").send_keys("/")
    assert window.chromium.switch_to.active_element.get_attribute("name") == "search"
    window.chromium.switch_to.active_element.send_keys("bill", Keys.ENTER)
    window.wait_for("billing")
    window.open("/brokers")
    window.find("body").send_keys(Keys.TAB)
    assert window.chromium.switch_to.active_element.text == "Skip to content"


def test_light_and_dark(window: Window) -> None:
    """Colours follow the wish of the system, and text stands out from what is behind it in both."""
    window.open("/brokers")
    seen: set[tuple[str, str]] = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        window.chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        window.keep(f"brokers-{scheme}")
        body = window.find("body")
        seen.add((body.value_of_css_property("color"), body.value_of_css_property("background-color")))
    assert len(seen) == 2
    assert all(text != behind for text, behind in seen)


@pytest.mark.usefixtures("orders")
def test_nothing_is_loaded_from_elsewhere_and_nothing_fails(window: Window) -> None:
    """No page breaks its own policy, and none logs an error."""
    for path in ("/topics", "/groups", "/brokers", "/topics/orders", "/topics/orders/messages", "/groups/billing"):
        window.open(path)
        script = "return performance.getEntriesByType('resource').map(each => new URL(each.name).host)"
        assert len(set(window.chromium.execute_script(script))) == 1
    assert [each for each in window.chromium.get_log("browser") if each["level"] == "SEVERE"] == []
