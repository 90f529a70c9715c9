# The part of fsspec that rocketlet's tests use; fsspec itself has no annotations.
from typing import Any

def filesystem(protocol: str, **storage_options: Any) -> Any: ...
