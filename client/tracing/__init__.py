"""Hooks that watch: message trace, spans, counts."""
