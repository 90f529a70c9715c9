"""Schemas as Spark hands them over: the types and nullability of columns, and the options of tables of its catalog.

    CREATE TABLE orders USING rocketmq OPTIONS (path '/stores/broker-a', topics 'orders')

Rules:

- Spark hands over all properties of a table when it is created: its own (``owner``, ``provider``, …), those of its
  user, the options once more as ``option.NAME``, and the path as a URI.
- When the table is read or written it hands over none of them, but the columns with their metadata. So the options go
  into the metadata of the first column. The catalog keeps them in clear, passwords too.
"""

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from ...common.errors import ConfigError
from ...export.plan.filesystems import local_path

_OPTION: Final = "option."
_PROVIDER: Final = "provider"
_PATHS: Final = ("path", "location")
_FILE: Final = "file:"
_KEY: Final = "rocketmq"


def options_of_table(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created, ``None`` where the properties are those of no table."""
    given = {name.lower(): value for name, value in properties.items()}
    if _PROVIDER not in given:
        return None
    options = {name.removeprefix(_OPTION): value for name, value in given.items() if name.startswith(_OPTION)}
    path = next((given[name] for name in _PATHS if name in given), None)
    if path is not None and "path" not in options:
        options["path"] = local_path(unquote(path)) if path.startswith(_FILE) else path
    return options


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the columns with the options in the metadata of the first."""
    first, *rest = schema.fields
    metadata = {_KEY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *rest])


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options that columns have kept; none where they are of no table."""
    return json.loads(schema.fields[0].metadata.get(_KEY, "{}")) if schema.fields else {}


def without_options(schema: StructType) -> StructType:
    """Return the columns without metadata."""
    return StructType([StructField(field.name, field.dataType, field.nullable) for field in schema.fields])


def check_types(asked: pa.Schema, known: pa.Schema) -> None:
    """Raise ``ConfigError`` for a column that is asked for in another type than it has."""
    for field, own in zip(asked, known, strict=True):
        if _spark_type(field) != _spark_type(own):
            raise ConfigError(f"column {field.name} is of type {own.type}, not {field.type}", key=field.name)


def fit_to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the nullability that Spark expects."""
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _spark_type(field: pa.Field) -> str:
    return from_arrow_schema(pa.schema([field])).simpleString()
