"""Builds drivers of official clients and other programs ahead of the tests: ``build.py [java] [go] …``."""

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
}


def main() -> None:
    """Build the named drivers, or all; a missing tool is told and is no failure, since the tests skip then."""
    for name in sys.argv[1:] or list(BUILDS):
        started = time.monotonic()
        try:
            BUILDS[name]()
        except MissingToolError as missing:
            sys.stderr.write(f"the {name} driver is not built: {missing}\n")
        else:
            sys.stdout.write(f"the {name} driver is built ({time.monotonic() - started:.1f} s)\n")


if __name__ == "__main__":
    main()
