"""Builds drivers of official clients and other programs ahead of the tests: ``build.py [java] [go] …``.

Without names it builds all; ``build.py --without-long`` leaves out what takes minutes, and only ``make test-ci`` uses.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))

from interop.toolchain import (
    JAVA_VERSION,
    OLD_JAVA_VERSION,
    MissingToolError,
    build_go,
    build_grpc_go,
    build_grpc_java,
    build_grpc_node,
    build_grpc_python,
    build_grpc_rust,
    build_h2spec,
    build_java,
    build_spring,
)

BUILDS = {
    "java": lambda: [*map(build_java, (JAVA_VERSION, OLD_JAVA_VERSION))],
    "spring": build_spring,
    "go": build_go,
    "h2spec": build_h2spec,
    "grpc-java": build_grpc_java,
    "grpc-python": build_grpc_python,
    "grpc-node": build_grpc_node,
    "grpc-go": build_grpc_go,
    "grpc-rust": build_grpc_rust,
}
LONG = {"grpc-rust"}


def main() -> None:
    """Build the named drivers, or all; a missing tool is told and is no failure, since the tests skip then."""
    named = sys.argv[1:] or list(BUILDS)
    if named == ["--without-long"]:
        named = [name for name in BUILDS if name not in LONG]
    for name in named:
        started = time.monotonic()
        try:
            BUILDS[name]()
        except MissingToolError as missing:
            sys.stderr.write(f"the {name} driver is not built: {missing}\n")
        else:
            sys.stdout.write(f"the {name} driver is built ({time.monotonic() - started:.1f} s)\n")


if __name__ == "__main__":
    main()
