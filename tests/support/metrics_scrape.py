"""Scrapes metrics over HTTP and parses them strictly."""

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

import httpx
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


Parse = Callable[[str], Iterable[Metric]]
_parse_openmetrics = cast("Parse", vars(openmetrics)["text_string_to_metric_families"])  # its argument has no type


class Scraped:
    """What one scrape told: values by name and labels."""

    def __init__(self, text: str, content_type: str) -> None:
        parse: Parse = _parse_openmetrics if content_type.startswith("application/openmetrics-text") else parse_text
        self.families = list(parse(text))
        samples = [
            (one.name, frozenset(one.labels.items()), one.value) for each in self.families for one in each.samples
        ]
        self.values = {(name, labels): value for name, labels, value in samples}
        assert len(self.values) == len(samples), "each series is told once"

    def all(self, name: str, **labels: str) -> list[float]:
        """Return the values of a metric whose labels hold these."""
        return [value for (each, has), value in self.values.items() if each == name and labels.items() <= has]

    def one(self, name: str, **labels: str) -> float:
        """Return the only value of a metric whose labels hold these."""
        (value,) = self.all(name, **labels)
        return value

    def labels(self, name: str) -> list[dict[str, str]]:
        """Return the labels of all values of a metric."""
        return [dict(has) for each, has in self.values if each == name]


Scrape = Callable[..., Awaitable[Scraped]]


def scrape_blocking(url: str) -> Scraped:
    """Scrape once in the text format, which no server may refuse, and parse what comes."""
    answer = httpx.get(url, headers={"Accept": "text/plain"}, trust_env=False)
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text, answer.headers["content-type"])


async def scrape_url(url: str, accept: str = OPENMETRICS) -> Scraped:
    """Scrape once and parse what comes strictly."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(url, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text, answer.headers["content-type"])
