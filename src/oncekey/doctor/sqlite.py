"""The doctor's checks of a SQLite file: where it is, how it is written, who can share it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from oncekey.doctor.finding import (
    BACKLOG,
    EXPIRED_LONG,
    Finding,
    backlog,
    danger,
    fine,
    held_since,
    indexes,
    unread,
    warning,
)
from oncekey.errors import StoreError

NETWORK: Final = frozenset(
    {
        *("9p", "afs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs"),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
        *("fuse.davfs", "fuse.blobfuse2", "fuse.mount-s3", "fuse.juicefs", "fuse.seaweedfs"),
    }
)
IN_MEMORY: Final = frozenset({"ramfs", "tmpfs"})
LAYERS: Final = frozenset({"aufs", "fuse.fuse-overlayfs", "overlay", "overlayfs"})
"""The file systems of a container's own files, which are deleted with it."""

_TABLE: Final = Path("/proc/self/mountinfo")
_MARKS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))


def file_system(path: Path, table: Path = _TABLE) -> str:
    """Return the kind of file system that the file is on, or would be; empty if unknown."""
    try:
        lines = table.read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return ""
    place = path.absolute().resolve()
    longest, kind = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(_unescaped(before.split()[4]))
        if (place == point or point in place.parents) and len(point.parts) >= longest:
            longest, kind = len(point.parts), after.split()[0]
    return kind


def in_container() -> bool:
    """Return whether this process runs in a container, as far as it can be told."""
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(mark.exists() for mark in _MARKS)


def _unescaped(name: str) -> str:
    """Decode the octal escapes that the kernel writes for spaces and the like."""
    return name.encode("utf-8", "surrogateescape").decode("unicode_escape")


_OLDEST: Final = (3, 35, 0)


def findings(path: Path, synchronous: str) -> Iterator[Finding]:
    """Check everything that can be read about the file without writing to it."""
    yield _version(sqlite3.sqlite_version_info)
    yield _writable(path)
    yield _place(file_system(path), path, container=in_container())
    yield _synchronous(synchronous)
    if path.exists():
        yield _journal(path)
        yield _mode(path)
        yield from _contents(path)


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
    if kind in NETWORK:
        meaning = "locks do not hold on a network file system: two machines run the same key"
        fix = "move the file to a local disk; machines share redis:// or postgresql://"
        return danger(check, meaning, evidence, fix)
    if kind in IN_MEMORY:
        meaning = "the file is in memory: a restart of the machine forgets every record"
        return warning(check, meaning, evidence, "move the file to a disk")
    if container and kind in LAYERS:
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


def _mode(path: Path) -> Finding:
    check, mode = "sqlite.mode", path.stat().st_mode & 0o777
    evidence = f"mode={mode:04o}"
    if not mode & 0o007:
        return fine(check, "other users of this machine cannot read the records", evidence)
    meaning = "every user of this machine can read the records, with what was returned"
    return warning(check, meaning, evidence, f"chmod o= {path}")


_INDEXES: Final = ("oncekey_records_due", "oncekey_records_held")
_THERE: Final = "SELECT name FROM sqlite_master WHERE name IN ('oncekey_records', ?, ?)"
_HELD: Final = (
    "SELECT count(*), min(updated) FROM oncekey_records WHERE expires = 0 AND status = 'held'"
)
_EXPIRED: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM oncekey_records "  # noqa: S608 - only constants
    f"WHERE due > 0 AND due <= ? AND expires > 0 AND expires <= ? LIMIT {BACKLOG + 1})"
)


def _contents(path: Path) -> Iterator[Finding]:
    """Check the indexes, and how long records are held and expired."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        there = {name for (name,) in connection.execute(_THERE, _INDEXES)}
        if "oncekey_records" not in there:
            return
        missing = [name for name in _INDEXES if name not in there]
        yield indexes("sqlite.indexes", missing)
        if missing:
            return  # what follows would read the whole table
        now = time.time_ns() // 1000
        count, since = connection.execute(_HELD).fetchone()
        yield held_since("sqlite.held", count, None if since is None else (now - since) / 1e6)
        long_ago = now - EXPIRED_LONG * 1_000_000
        yield backlog("sqlite.backlog", connection.execute(_EXPIRED, (long_ago,) * 2).fetchone()[0])


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
