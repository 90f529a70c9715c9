"""`make demo`, smaller."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest


def shape(printed: str) -> list[str]:
    """Return the lines of an output without its numbers, names of files and widths of columns."""
    text = re.sub(r"\S*/rocketlet-demo-\w+|shipped|created|paid|north|south", "…", printed)
    text = re.sub(r"[\d,.]*\d", "#", text)
    lines = (re.sub(r"[ -]+", " ", line).replace(" |", "|").strip() for line in text.splitlines())
    return sorted({line for line in lines if line and not line.startswith("$ make")})


def test_demo_prints_what_the_readme_shows(checkout: pathlib.Path, tmp_path: pathlib.Path):
    """The demo sends, consumes, exports and proves, prints what the README shows, and leaves no file."""
    if not shutil.which("java") and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17")
    command = [sys.executable, str(checkout / "examples" / "demo.py"), "--messages", "5000"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "nobody got 0, both got 0" in run.stdout
    assert "records in the log: 5000; rows in Parquet: 5000; left out by reason: none" in run.stdout
    (shown,) = re.findall(
        r"^```text\n\$ make demo\n(.*?)^```$", (checkout / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert shape(run.stdout) == shape(shown)
    assert list(tmp_path.iterdir()) == []
