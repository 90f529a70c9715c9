"""The control port describes itself as it is."""

import json
import pathlib

import control_page
import httpx
from openapi_spec_validator import OpenAPIV31SpecValidator

from rocketlet.cli.control_port.openapi import describe
from rocketlet.cli.control_port.routes import ROUTES

CHECKOUT = pathlib.Path(__file__).parents[3]


def test_document_is_valid() -> None:
    """It follows OpenAPI 3.1, references included."""
    document = json.loads(json.dumps(describe("1.2.3")))
    assert document["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert document["info"]["version"] == "1.2.3"


def test_document_has_each_route_once() -> None:
    """Under its own name, with what it takes and answers."""
    described = [
        (method.upper(), path, operation["operationId"])
        for path, methods in describe("1")["paths"].items()
        for method, operation in methods.items()
    ]
    assert sorted(described) == sorted((route.method, route.path, route.name) for route in ROUTES)
    assert len({name for *_, name in described}) == len(described)


async def test_document_is_served(control: httpx.AsyncClient) -> None:
    """As JSON."""
    answer = await control.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == json.loads(json.dumps(describe("1.2.3")))


def test_page_of_the_reference() -> None:
    """It is what `make control-port` writes."""
    page = CHECKOUT / control_page.PAGE
    assert page.read_text() == control_page.write(page.read_text())
