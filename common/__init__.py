"""Words, pure codecs and pure rules that several parts share; no I/O."""
