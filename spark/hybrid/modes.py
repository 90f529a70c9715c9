"""What a reading reads, and which options belong to that.

path | paths      stores: the files of a log
nameserver        a running cluster
columns           of both: only these, separated by commas, in this order
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import pyarrow as pa

from ...common.errors import ConfigError
from ...export.columns.schema import FULL_SCHEMA, SCHEMA, pick_columns
from ...export.write.pulled_reader import BROKER_COLUMN, pick_live_columns
from ..cluster import liveoptions
from ..options import options as coldoptions
from ..options.access import NAMESERVER
from ..options.optionvalues import Given
from ..stream import streamoptions
from . import hybridoptions

ROLE: Final = "the rocketmq source"
COLUMNS: Final = "columns"
_EVERY_NAME: Final = frozenset((*coldoptions.NAMES, *liveoptions.NAMES, *streamoptions.NAMES, *hybridoptions.NAMES))


class Mode(StrEnum):
    """What a reading reads."""

    STORES = "stores"
    CLUSTER = "a cluster"
    HYBRID = "stores and their cluster"


_BATCH_NAMES: Final = {
    Mode.STORES: coldoptions.NAMES,
    Mode.CLUSTER: liveoptions.NAMES,
    Mode.HYBRID: hybridoptions.FITTING,
}


def reading_options(options: Mapping[str, str]) -> Given:
    """Return the options of a reading, of whatever mode.

    Raises:
        ConfigError: An unknown name.
    """
    return Given(options, _EVERY_NAME, ROLE)


def find_mode(given: Given) -> Mode:
    """Return what is to be read.

    Raises:
        ConfigError: Nothing is named.
    """
    has_stores = "path" in given or "paths" in given
    if has_stores:
        return Mode.HYBRID if NAMESERVER in given else Mode.STORES
    if NAMESERVER in given:
        return Mode.CLUSTER
    raise ConfigError(f'no store is named: load("STORE"), or load(["STORE", …]); nor a {NAMESERVER}', key="path")


def check_batch(given: Given, mode: Mode) -> None:
    """Raise ``ConfigError`` for an option that belongs to something else than a batch of this mode."""
    given.refuse_others(_BATCH_NAMES[mode], f"it is no option of a batch that reads {mode}")


def check_stream(mode: Mode) -> None:
    """Raise ``ConfigError`` for what cannot be read as a stream."""
    if mode is Mode.STORES:
        raise ConfigError(f"stores alone are no stream; give the {NAMESERVER} of their cluster as well", key=NAMESERVER)


def pick_schema(given: Given, mode: Mode) -> pa.Schema:
    """Return the columns of a reading: those of option ``columns``, in its order, or all.

    Raises:
        ConfigError: There is no such column.
    """
    names = _column_names(given)
    if names is None:
        with_system = given.flag("includeSystemTopics", default=False)
        names = [*(FULL_SCHEMA if with_system else SCHEMA).names, *([] if mode is Mode.STORES else [BROKER_COLUMN])]
    return pick_columns(names) if mode is Mode.STORES else pick_live_columns(names)


def check_columns(given: Given, schema: pa.Schema) -> None:
    """Raise ``ConfigError`` when a schema was given that is not what option ``columns`` asks for."""
    names = _column_names(given)
    if names is not None and names != schema.names:
        raise ConfigError(f"{COLUMNS} and the given schema contradict each other; give one of them", key=COLUMNS)


def _column_names(given: Given) -> list[str] | None:
    text = given.text(COLUMNS)
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{COLUMNS} names no column", key=COLUMNS)
    return names
