"""Builds one state of a crash point again, by the name that a failing test prints, and verifies it.

    .venv/bin/python tests/durability/state.py NAME [FOLDER]

The state is kept when it fails, below FOLDER or a new temporary directory.
"""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))

from crash.survey import StateName, Survey  # the path above leads to it


def main(text: str, folder: str = "") -> int:
    """Verify the state and say what is wrong with it."""
    name = StateName.parse(text)
    root = pathlib.Path(folder or tempfile.mkdtemp(prefix="rocketlet-state-")) / "survey"
    survey = Survey(root, name.workload, name.steps, name.is_sync)
    survey.run_one(name)
    for failure in survey.failures:
        sys.stdout.write(f"{failure}\n")
    if not survey.failures:
        sys.stdout.write(f"{name} holds all {survey.required} acknowledged messages\n")
    return 1 if survey.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
