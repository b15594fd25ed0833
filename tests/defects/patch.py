"""Applies a unified diff, which must fit to the letter: one that does not apply proves nothing."""

import re
from pathlib import Path

HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


def apply(patch: str, root: Path) -> None:
    """The files below `root` are as the patch wants them."""
    for part in re.split(r"(?m)^--- ", patch)[1:]:
        header, _, hunks = part.partition("\n")
        target = root / header.split("\t")[0].strip().removeprefix("a/")
        lines = target.read_text().splitlines()
        moved = 0
        for hunk in re.split(r"(?m)(?=^@@ )", hunks)[1:]:
            moved += _apply_hunk(hunk, lines, moved, target)
        target.unlink()  # it may be a link to a file that stays as it is
        target.write_text("\n".join(lines) + "\n")


def _apply_hunk(hunk: str, lines: list[str], moved: int, target: Path) -> int:
    head, *body = hunk.splitlines()
    match = HUNK.match(head)
    assert match, head
    before = [line[1:] for line in body if line[:1] in (" ", "-")]
    after = [line[1:] for line in body if line[:1] in (" ", "+")]
    at = _find(before, lines, int(match[1]) - 1 + moved)
    if at is None:
        msg = f"the patch does not fit {target.name} any more:\n{hunk}"
        raise SystemExit(msg)
    lines[at : at + len(before)] = after
    return len(after) - len(before)


def _find(wanted: list[str], lines: list[str], near: int) -> int | None:
    """Where the lines stand; the place nearest to where they stood when the patch was made."""
    places = [
        at for at in range(len(lines) - len(wanted) + 1) if lines[at : at + len(wanted)] == wanted
    ]
    return min(places, key=lambda at: abs(at - near), default=None)
