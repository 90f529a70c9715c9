"""Which Python Spark's workers run: the one of this process, which has the package, if nobody has chosen another.

Rules:

- Spark starts ``python3`` of the path. From a virtual environment that is not activated, that is another one.
- Where all workers run on this machine, they can run this Python. On nodes it may not be there: then it is only said.
- ``PYSPARK_PYTHON`` and ``spark.pyspark.python`` are a choice, which is kept.
"""

import logging
import os
import shutil
import subprocess
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

_VARIABLE: Final = "PYSPARK_PYTHON"
_SETTINGS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")
_ASK: Final = "import importlib.util, sys; sys.exit(importlib.util.find_spec('rocketlet') is None)"
_log = logging.getLogger(__name__)


def choose_python(spark: SparkSession) -> None:
    """Make the workers of a session run this Python, or warn where they will not find the package."""
    context: Any = getattr(spark, "_sc", None)
    if context is None:  # a client of a Spark that runs elsewhere
        return
    found = shutil.which(str(context.pythonExec))
    if found is not None and os.path.samefile(os.path.dirname(found), os.path.dirname(sys.executable)):
        return
    is_sent = bool(context._python_includes)  # noqa: SLF001 # files of --py-files and addPyFile, which may be the package
    is_chosen = _VARIABLE in os.environ or any(context.getConf().get(name) for name in _SETTINGS)
    if not is_chosen and context.master.startswith("local"):
        context.pythonExec = sys.executable
    elif not is_sent and not _has_package(found):
        _log.warning(
            "Spark's workers run %s, which has no rocketlet: set %s to the Python of an environment that has it, as %s",
            found or context.pythonExec,
            _VARIABLE,
            sys.executable,
        )


def _has_package(python: str | None) -> bool:
    if python is None:
        return False
    asked = subprocess.run([python, "-c", _ASK], capture_output=True, check=False)  # noqa: S603 # what Spark would run
    return not asked.returncode
