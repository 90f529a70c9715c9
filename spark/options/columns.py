"""Columns as Spark wants them: the types of a given schema, and the nullability of a batch."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from ...common.errors import ConfigError


def check_types(asked: pa.Schema, known: pa.Schema) -> None:
    """Raise ``ConfigError`` for a column that is asked for in another type than it has."""
    for field, own in zip(asked, known, strict=True):
        if _spark_type(field) != _spark_type(own):
            raise ConfigError(f"column {field.name} is of type {own.type}, not {field.type}", key=field.name)


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the nullability that Spark expects."""
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _spark_type(field: pa.Field) -> str:
    return from_arrow_schema(pa.schema([field])).simpleString()
