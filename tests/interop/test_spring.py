"""An application on the Spring Boot starter of RocketMQ, which is how most Java users come."""

import pathlib
import subprocess
from collections.abc import Callable

import pytest
from interop.clients import Admin
from interop.driver import Driver
from interop.servers import Server
from interop.toolchain import QUICK_JVM, build_spring
from interop.versions import skipped_without

RUN_LIMIT_S = 150  # a consumer looks for routes of a new topic every 30 s
# It shows open transactions to their producer soon; nothing else differs from a plain `rocketlet up`.
CHECKS_SOON = {"transactionCheckInterval": "1000", "transactionTimeOut": "500"}

ANSWERS = [
    "sync SEND_OK",
    "orderly SEND_OK",
    "delay SEND_OK",
    "async SEND_OK",
    "transaction SEND_OK COMMIT_MESSAGE",
    "transaction SEND_OK ROLLBACK_MESSAGE",
    "transaction SEND_OK UNKNOW",
    "reply tea costs 7",
]
CONSUMED = {
    "order 1 converted",
    "order 2 sync",
    "order 3 orderly",
    "order 4 delayed",
    "order 9 async",
    "payment 6 commit",
    "payment 8 unknown",
}


@pytest.fixture(scope="module")
def spring() -> str:
    """Return the class path of the application."""
    with skipped_without("the Spring Boot application"):
        return build_spring()


@pytest.mark.timeout(RUN_LIMIT_S + 60)
def test_spring_boot_application_works_as_in_its_quick_start(
    spring: str, rocketlet_up: Callable[..., Server], java: Driver, tmp_path: pathlib.Path
) -> None:
    """It sends in five ways and in transactions to topics that nobody created, and asks; all is consumed once."""
    with rocketlet_up(tmp_path / "store", **CHECKS_SOON) as server:
        with Admin(java, namesrv=server.namesrv) as admin:  # no consumer finds a new topic before a request ends
            admin.create_topic(server.broker, "shop-prices")
        said = run_shop(spring, server)
    assert [line for line in said if not line.startswith("consumed ")] == ANSWERS
    consumed = [line.removeprefix("consumed ") for line in said if line.startswith("consumed ")]
    assert sorted(consumed) == sorted(CONSUMED)


def run_shop(spring: str, server: Server) -> list[str]:
    """Run the application to its end; return what it said."""
    command = ["java", *QUICK_JVM, "-cp", spring, "rocketlet.shop.Shop", f"--rocketmq.name-server={server.namesrv}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, "\n".join(lines[-60:]) + done.stderr
    return [line.removeprefix("shop: ") for line in lines if line.startswith("shop: ")]
