"""Writes ``proxy/messages/v2.pyi``, the types of the messages of gRPC, from their table."""

import pathlib

from rocketlet.proxy.messages.schema import ENUMS, Field, parse_table

PATH = pathlib.Path(__file__).parents[2] / "proxy" / "messages" / "v2.pyi"
_TYPES = {
    "string": "str",
    "bytes": "bytes",
    "bool": "bool",
    "float": "float",
    "i32": "int",
    "i64": "int",
    "Ts": "Timestamp",
    "Dur": "Duration",
}
_HEAD = """# Written by tests/support/grpc_stub.py from the table in schema.py.
from collections.abc import Iterable, Mapping
from typing import Literal

from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer, ScalarMap
from google.protobuf.message import Message as _Message
from google.protobuf.timestamp_pb2 import Timestamp
"""


def write_stub() -> str:
    """Return the text of the file."""
    table = parse_table()
    classes = [_class(name, fields, frozenset(table)) for name, fields in table.items()]
    return "\n\n".join([_HEAD.rstrip("\n"), *classes]) + "\n"


def _class(name: str, fields: list[Field], messages: frozenset[str]) -> str:
    lines = [f"class {name}(_Message):"]
    parameters = ["self", "*"]
    present: list[str] = []
    choices: dict[str, list[str]] = {}
    for field in fields:
        kind = _TYPES.get(field.type) or ("int" if field.type in ENUMS else field.type)
        is_message = field.type in messages or field.type in ("Ts", "Dur")
        lines += _attribute(field, kind, is_message=is_message)
        parameters.append(f"{field.name}: {_given(field, kind)} | None = ...")
        if field.choice:
            choices.setdefault(field.choice, []).append(field.name)
        if field.choice or field.mark == "?" or (is_message and field.mark != "*"):
            present.append(field.name)
    lines += ["    def __init__(", *(f"        {each}," for each in parameters), "    ) -> None: ..."]
    if present:
        lines.append(f"    def HasField(self, field_name: {_literal(present)}) -> bool: ...")
    for choice, names in choices.items():
        lines.append(f"    def WhichOneof(self, oneof_group: {_literal([choice])}) -> {_literal(names)} | None: ...")
    return "\n".join(lines)


def _attribute(field: Field, kind: str, *, is_message: bool) -> list[str]:
    if field.type == "map":
        shape = "ScalarMap[str, str]"
    elif field.mark == "*":
        container = "RepeatedCompositeFieldContainer" if is_message else "RepeatedScalarFieldContainer"
        shape = f"{container}[{kind}]"
    elif is_message:
        shape = kind
    else:
        return [f"    {field.name}: {kind}"]
    return ["    @property", f"    def {field.name}(self) -> {shape}: ..."]


def _given(field: Field, kind: str) -> str:
    if field.type == "map":
        return "Mapping[str, str]"
    return f"Iterable[{kind}]" if field.mark == "*" else kind


def _literal(names: list[str]) -> str:
    return f"Literal[{', '.join(repr(name) for name in names)}]"


if __name__ == "__main__":
    PATH.write_text(write_stub())
