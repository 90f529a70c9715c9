"""The documentation site: it builds without a word, nothing in it leads nowhere, and nothing comes from elsewhere."""

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

import rocketlet.client
import rocketlet.spark
import rocketlet.testing

ROOT = pathlib.Path(__file__).parent.parent.parent
CONFIG: Final = "zensical.toml"
LOADING: Final = frozenset({"script", "link", "img", "iframe", "source", "video", "audio", "object", "embed"})
"""Elements whose addresses a browser loads by itself."""
NO_PAGES: Final = frozenset({"package.md"})
"""What the package's page in registries is made of."""


class Reference(NamedTuple):
    """An address in a page, and the element it stands in."""

    tag: str
    address: str


class Page(HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.references: list[Reference] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note addresses and anchors of an element."""
        for name, value in attrs:
            if value and (name in {"href", "src", "data"} and not (tag == "link" and ("rel", "canonical") in attrs)):
                self.references.append(Reference(tag, value))
            elif value and name in {"id", "name"}:
                self.anchors.add(value)


def build(folder: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """Build the site of a folder as ``make docs`` does."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a folder with what the site is made of."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / CONFIG, folder)
    package = folder / ".venv" / "docs" / "rocketlet"
    package.mkdir(parents=True)
    for part in ("__init__.py", "client", "common", "spark", "testing"):
        (package / part).symlink_to(ROOT / part)
    return folder


@pytest.fixture(scope="module")
def built(project: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """Return the run that has built the site."""
    return build(project)


@pytest.fixture(scope="module")
def site(project: pathlib.Path, built: "subprocess.CompletedProcess[str]") -> pathlib.Path:
    """Return the folder of the site."""
    assert built.returncode == 0, built.stdout + built.stderr
    return project / "build" / "site"


@pytest.fixture(scope="module")
def pages(site: pathlib.Path) -> dict[pathlib.Path, Page]:
    """Return the pages of the site."""
    return {path: Page(path) for path in site.rglob("*.html")}


def test_build_says_nothing_of_warnings(built: "subprocess.CompletedProcess[str]"):
    """Neither the builder nor what reads the docstrings."""
    said = built.stdout + built.stderr
    assert built.returncode == 0, said
    assert not re.search(r"warn|error", said, flags=re.IGNORECASE), said


def test_broken_link_fails_the_build(project: pathlib.Path, tmp_path: pathlib.Path):
    """Of a page that is not there, and of an anchor."""
    for broken in ("[a](missing.md)", "[a](index.md#missing)"):
        folder = tmp_path / str(len(broken))
        (folder / "docs").mkdir(parents=True)
        (folder / "docs" / "index.md").write_text(f"# A\n\n{broken}\n")
        (folder / CONFIG).write_text('[project]\nsite_name = "a"\nsite_dir = "build/site"\nstrict = true\n')
        assert build(folder).returncode != 0


def test_every_link_leads_somewhere(pages: dict[pathlib.Path, Page]):
    """To a file of the site, and to an anchor that the page has."""
    broken = [
        f"{path.name}: {reference.address}"
        for path, page in pages.items()
        for reference in page.references
        if not _leads_somewhere(path, reference.address, pages)
    ]
    assert broken == []


def _leads_somewhere(path: pathlib.Path, address: str, pages: dict[pathlib.Path, Page]) -> bool:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return True
    root = next(page.parent for page in pages if page.name == "404.html")  # whose addresses are those of a server
    target = path.parent / unquote(parts.path) if parts.path else path
    if parts.path.startswith("/"):
        target = root / unquote(parts.path).lstrip("/")
    target = target.resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or target not in pages or anchor in pages[target].anchors | {"__toc"}


def test_nothing_is_loaded_from_elsewhere(site: pathlib.Path, pages: dict[pathlib.Path, Page]):
    """No script, style, picture or font of another server: the site works where there is no network."""
    loaded = {
        reference.address
        for page in pages.values()
        for reference in page.references
        if reference.tag in LOADING and urlsplit(reference.address).netloc
    }
    assert loaded == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"@import|url\(['\"]?(?:https?:)?//[^)]*\)", styles) == []


def test_links_of_the_readme_lead_into_the_site(site: pathlib.Path, pages: dict[pathlib.Path, Page]):
    """Pages are there, and anchors are those of the site as well."""
    for address in re.findall(r"\]\((docs/[^)]*)\)", (ROOT / "README.md").read_text()):
        path, _, anchor = address.partition("#")
        assert (ROOT / path).is_file()
        if not path.endswith(".md"):
            continue
        page = site / pathlib.PurePath(path).relative_to("docs").with_suffix(".html")
        if page.stem == "README":
            page = page.with_name("index.html")
        assert page in pages, address
        assert not anchor or anchor in pages[page].anchors, address


def _places(nav: list[str | dict[str, Any]]) -> Iterator[str]:
    for each in nav:
        found = each if isinstance(each, str) else next(iter(each.values()))
        yield from [found] if isinstance(found, str) else _places(found)


def test_every_page_is_in_the_navigation_once():
    """A page that is not there is found by nobody."""
    nav = tomllib.loads((ROOT / CONFIG).read_text())["project"]["nav"]
    counts = Counter(_places(nav))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert counts == Counter(pages - NO_PAGES)


def test_everything_public_has_its_place_in_the_reference(site: pathlib.Path, pages: dict[pathlib.Path, Page]):
    """Each name that users import is on one page of the API, with its docstring."""
    reference = [page for path, page in pages.items() if path.parent == site / "reference" / "api"]
    counts = Counter(anchor for page in reference for anchor in page.anchors)
    for module in (rocketlet.client, rocketlet.testing, rocketlet.spark):
        for name in module.__all__:
            assert counts[f"{module.__name__}.{name}"] == 1, name


def test_search_needs_no_server(site: pathlib.Path, chromium: Any):
    """Pages that are opened from the file system find each other."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    waiting = WebDriverWait(chromium, 60)
    chromium.get((site / "guide" / "producer.html").as_uri())
    page = chromium.find_element(By.TAG_NAME, "body")
    assert "PullConsumerSettings" not in page.text
    page.send_keys(Keys.CONTROL, "k")
    waiting.until(lambda _: chromium.switch_to.active_element != page)
    chromium.switch_to.active_element.send_keys("rebalance")
    waiting.until(lambda _: "PullConsumerSettings" in page.text)
