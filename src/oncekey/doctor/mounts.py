"""On which kind of file system a path is, and whether this is a container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

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
"""What a container's own files are on; they go with it."""

_TABLE: Final = Path("/proc/self/mountinfo")
_MARKS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))


def file_system(path: Path, table: Path = _TABLE) -> str:
    """The kind of file system that the file is on, or would be; empty where nobody can tell."""
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
    """Whether this process runs in a container, as far as containers tell."""
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(mark.exists() for mark in _MARKS)


def _unescaped(name: str) -> str:
    """The kernel writes spaces and the like as octal numbers."""
    return name.encode("utf-8", "surrogateescape").decode("unicode_escape")
