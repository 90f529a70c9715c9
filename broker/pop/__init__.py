"""POP: the broker hands messages out for a time, and hands out again what was not acknowledged in it."""
