"""The environment of a guest: its source distribution, and an interpreter with what it needs."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

from tests.outside.guests import Guest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "outside"
OURS = ROOT / "constraints.txt"
NEEDED_BY_US = ("msgspec",)


class Place(NamedTuple):
    """Where a guest lives."""

    folder: Path
    python: Path
    source: Path


def prepare(guest: Guest, *, pin: bool = False) -> Place:
    """Make the environment of the guest, unless the one that is there fits.

    With `pin` the versions that pip chose where none was fixed are written to the constraints.
    """
    folder = BUILD / guest.home
    stamp = folder / "stamp"
    if not stamp.is_file() or stamp.read_text("utf-8") != digest(guest):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        install(guest, folder, pin=pin)
        unpack(guest, folder)
        stamp.write_text(digest(guest), "utf-8")
    return place_in(folder)


def place_in(folder: Path) -> Place:
    return Place(folder, folder / "venv" / "bin" / "python", folder / "source")


def digest(guest: Guest) -> str:
    """Summarize all that the environment is made of."""
    parts = [sys.version, guest.requirements, sorted(pins(guest).items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# Versions


def pins(guest: Guest) -> dict[str, str]:
    """Return the version of each package: ours, unless the guest needs another."""
    return read(OURS) | read(constraints(guest))


def constraints(guest: Guest) -> Path:
    return HERE / "constraints" / f"{guest.home}.txt"


def read(path: Path) -> dict[str, str]:
    """Read a file of `name==version` lines."""
    if not path.is_file():
        return {}
    lines = path.read_text("utf-8").split()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines)}


def write(path: Path, versions: dict[str, str]) -> None:
    """Write a file of `name==version` lines."""
    path.write_text("".join(f"{name}=={versions[name]}\n" for name in sorted(versions)), "utf-8")


def normal(name: str) -> str:
    """Spell a name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version(guest: Guest) -> str:
    return pins(guest)[normal(guest.distribution)]


# What is made


def install(guest: Guest, folder: Path, *, pin: bool) -> None:
    """Make an interpreter with the guest's requirements in it, all at fixed versions."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    fixed = pins(guest)
    limits = folder / "constraints.txt"
    write(limits, fixed)
    python = place_in(folder).python
    pip(python, "install", "-c", limits, *guest.requirements, *NEEDED_BY_US)
    found = frozen(python)
    loose = {name: found[name] for name in found.keys() - fixed.keys()}
    if loose and not pin:
        names = ", ".join(sorted(loose))
        raise SystemExit(f"constraints/{guest.home}.txt has no version of {names}; --pin adds them")
    if loose:
        write(constraints(guest), read(constraints(guest)) | loose)


def unpack(guest: Guest, folder: Path) -> None:
    """Get the source distribution, which has the tests in it."""
    named = f"{guest.distribution}=={version(guest)}"
    words = ("--no-deps", "--no-binary", guest.distribution, "-d", folder, named)
    pip(place_in(folder).python, "download", *words)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    [unpacked] = folder.glob(f"*-{version(guest)}")
    unpacked.rename(folder / "source")
    archive.unlink()


def pip(python: Path, *words: object) -> str:
    """Run pip and return what it prints."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pip {words[0]} failed:\n{done.stderr}")
    return done.stdout


def frozen(python: Path) -> dict[str, str]:
    """Return the version of each package that is installed."""
    lines = pip(python, "freeze", "--all", "--exclude", "pip", "--exclude", "setuptools").split()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines)}
