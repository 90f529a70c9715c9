"""The control port as an OpenAPI document, made from its table and the types there."""

from typing import Any, Final, get_args

import msgspec

from .answers import Refused
from .routes import BAD, ROUTES, STATUSES, TAR, Route

_PLACE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
Schema = dict[str, Any]


def describe(version: str) -> Schema:
    """Return the document; ``version`` is that of rocketlet."""
    bodies = [kind for route in ROUTES for kind in (route.body, route.answer, route.query) if kind is not None]
    found, components = msgspec.json.schema_components([Refused, *bodies], ref_template=_PLACE)
    schemas = dict(zip(map(repr, [Refused, *bodies]), found, strict=True))
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route, schemas, components)
    asked = {route.query.__name__ for route in ROUTES if route.query is not None}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rocketlet control port",
            "version": version,
            "description": "Time, faults, looks and waits of a broker that tests of any language use.",
        },
        "paths": paths,
        "components": {"schemas": {name: schema for name, schema in components.items() if name not in asked}},
    }


def _describe_route(route: Route, schemas: dict[str, Schema], components: dict[str, Schema]) -> Schema:
    described: Schema = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.section],
        "responses": _describe_answers(route, schemas),
    }
    if parameters := [*_number_of(route), *_query_of(route, components)]:
        described["parameters"] = parameters
    if route.body is not None:
        is_needed = bool(route.body) and not _may_be_empty(route, components)
        described["requestBody"] = {
            "required": is_needed,
            "content": {_JSON: {"schema": schemas[repr(route.body)]}},
        }
    if route.takes_file:
        described["requestBody"] = {"required": True, "content": {TAR: {}}}
    return described


def _may_be_empty(route: Route, components: dict[str, Schema]) -> bool:
    return isinstance(route.body, type) and not components[route.body.__name__].get("required")


def _describe_answers(route: Route, schemas: dict[str, Schema]) -> Schema:
    if route.gives_file:
        described: Schema = {"200": {"description": "The snapshot.", "content": {TAR: {}}}}
    elif route.answer is None:
        described = {"204": {"description": "It is done."}}
    else:
        schema = schemas[repr(route.answer)]
        described = {"200": {"description": _describe_kind(route.answer), "content": {_JSON: {"schema": schema}}}}
    refused = {"content": {_JSON: {"schema": schemas[repr(Refused)]}}}
    for status in sorted({BAD, *route.refusals}):
        described[str(status)] = {"description": STATUSES[status], **refused}
    return described


def _number_of(route: Route) -> list[Schema]:
    if not route.has_number:
        return []
    return [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}]


def _query_of(route: Route, components: dict[str, Schema]) -> list[Schema]:
    if route.query is None:
        return []
    schema = components[route.query.__name__]
    needed = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": _without_null(field)}
        for name, field in schema["properties"].items()
    ]


def _without_null(schema: Schema) -> Schema:
    """Return the schema of what is left out of an address where it is null in a body."""
    if "anyOf" not in schema:
        return schema
    [kind] = [each for each in schema["anyOf"] if each != {"type": "null"}]
    return {**kind, **{name: value for name, value in schema.items() if name not in {"anyOf", "default"}}}


def _describe_kind(kind: Any) -> str:
    """Return what a body is, in words."""
    [one] = get_args(kind) or [kind]
    text = str(one.__doc__).partition("\n")[0]
    return f"A list. Each: {text}" if get_args(kind) else text


def type_name(kind: Any) -> str:
    """Return how a body is called, in words."""
    [one] = get_args(kind) or [kind]
    return f"list of {one.__name__}" if get_args(kind) else one.__name__
