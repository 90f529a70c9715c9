"""Java's JSON: msgspec first, and one lenient reader with fastjson's rules behind it. No I/O."""
