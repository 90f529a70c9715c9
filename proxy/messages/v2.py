"""The messages of the protocol as classes, named as it names them; ``v2.pyi`` tells type checkers their fields."""

from .schema import build_classes

globals().update(build_classes())
