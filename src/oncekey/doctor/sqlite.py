"""What a SQLite file does to records: where it is, how it is written, who can share it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from oncekey.doctor import mounts
from oncekey.doctor.finding import Finding, danger, fine, unread, warning
from oncekey.errors import StoreError

_OLDEST: Final = (3, 35, 0)


def findings(path: Path, synchronous: str) -> Iterator[Finding]:
    """Everything that can be found out about the file without writing to it."""
    yield _version(sqlite3.sqlite_version_info)
    yield _writable(path)
    yield _place(mounts.file_system(path), path, container=mounts.in_container())
    yield _synchronous(synchronous)
    if path.exists():
        yield _journal(path)


def _version(version: tuple[int, ...]) -> Finding:
    check, evidence = "sqlite.version", f"sqlite_version={'.'.join(map(str, version))}"
    if version >= _OLDEST:
        return fine(check, "the library is new enough", evidence)
    fix = "use a Python with SQLite 3.35 or newer"
    return danger(check, "the library is too old for the statements", evidence, fix)


def _writable(path: Path) -> Finding:
    check, folder = "sqlite.writable", path.absolute().parent
    # SQLite keeps two more files beside it.
    wanted = [folder, path] if path.exists() else [folder]
    refused = [str(one) for one in wanted if not os.access(one, os.R_OK | os.W_OK)]
    if not refused:
        return fine(check, "the file and its folder can be written", f"path={path}")
    meaning = "every claim is refused: the file cannot be written"
    evidence = f"no right to write {', '.join(refused)}"
    return danger(check, meaning, evidence, "give a path that this process may write")


def _place(kind: str, path: Path, *, container: bool) -> Finding:
    check, evidence = "sqlite.place", f"{path} is on {kind}"
    if not kind:
        what = "on which file system the file is"
        return unread(check, what, f"{path}, on a system that does not tell", "use a local disk")
    if kind in mounts.NETWORK:
        meaning = "locks do not hold on a network file system: two machines run the same key"
        fix = "move the file to a local disk; machines share redis:// or postgresql://"
        return danger(check, meaning, evidence, fix)
    if kind in mounts.IN_MEMORY:
        meaning = "the file is in memory: a restart of the machine forgets every record"
        return warning(check, meaning, evidence, "move the file to a disk")
    if container and kind in mounts.LAYERS:
        meaning = (
            "the file is inside the container: it ends with it, and no other container sees it"
        )
        fix = "put the file on a volume; several containers share redis:// or postgresql://"
        return warning(check, meaning, evidence, fix)
    return fine(check, "processes of this machine, and no others, share the file", evidence)


def _synchronous(value: str) -> Finding:
    check, evidence = "sqlite.synchronous", f"synchronous={value}"
    if value == "FULL":
        return fine(check, "a claim is on the disk before it is answered", evidence)
    meaning = "a power cut may lose the last claims, and what they protect runs again"
    return warning(check, meaning, evidence, "take ?synchronous=NORMAL out of the URL")


def _journal(path: Path) -> Finding:
    check = "sqlite.journal"
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    except sqlite3.Error as error:
        msg = f"the SQLite file {path} cannot be read: {error}"
        raise StoreError(msg, happened=False) from error
    evidence = f"journal_mode={mode}"
    if mode == "wal":
        return fine(check, "readers and writers do not wait for each other", evidence)
    meaning = "the file is not in WAL mode: somebody changed it, or its file system cannot"
    fix = "let nobody else set journal_mode; the next use of the store sets it again"
    return warning(check, meaning, evidence, fix)
