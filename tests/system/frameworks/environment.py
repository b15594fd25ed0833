"""The environment of the frameworks, whose pins disagree with ours."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from tests.outside.environment import ROOT, pip

FOLDER = ROOT / "build" / "frameworks"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def prepare() -> Path:
    """Return the interpreter of an environment that has exactly the packages of the constraints.

    To renew them, install `fastmcp mcp openai-agents langchain-core pydantic-ai-slim apscheduler
    cloudpickle msgspec` in a fresh environment, and write down what `pip freeze` prints.
    """
    return prepared(FOLDER, CONSTRAINTS)


def prepared(folder: Path, constraints: Path, of: str = sys.executable) -> Path:
    """Make the environment of an interpreter, unless it is there. Return the one inside.

    Several workers may ask for it at once: one of them makes it, and the others wait.
    """
    python, stamp = folder / "bin" / "python", folder / "stamp"
    wanted = f"{of}\n{sys.version}\n{constraints.read_text('utf-8')}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text("utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([of, "-m", "venv", folder], check=True)
            pip(python, "install", "--no-deps", "-r", constraints)
            stamp.write_text(wanted, "utf-8")
    return python
