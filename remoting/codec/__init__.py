"""Frames and commands as bytes: both header serialisations, codes, field tables. Knows no socket."""
