"""The compiled twins of what concerns the fields of remoting headers, ``None`` without a compiler.

Those of records and properties are ``properties.codecs``: whoever reads a store without a broker needs no others.
"""

from .properties import codecs

header_codecs = None
if codecs is not None:
    try:
        from . import _header_codecs as header_codecs  # pyright: ignore[reportUnusedImport]  # others take it from here
    except ImportError:
        header_codecs = None
