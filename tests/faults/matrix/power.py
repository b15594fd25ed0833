"""A power cut: the server and its machine go at once, and what was not on the disk is gone.

SIGKILL alone does not show this: the system still writes what the process had written. So the
file is cut by hand. Of PostgreSQL it is known how far its log was flushed. Of Redis it is not:
with `everysec` a second is taken away, which is what its documentation allows to be lost; with
`always` it flushes before it answers, so that nothing that anybody heard of can be taken away.
"""

import time

from tests.faults.matrix.crowd import Crowd, wait_until
from tests.faults.matrix.store_servers import PostgresPlace, RedisPlace

SEGMENT = 16 * 1024 * 1024
WINDOW = 1.0
IDLE = (
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    " AND state <> 'idle' AND pid <> pg_backend_pid()"
)


def cut_redis(place: RedisPlace, crowd: Crowd) -> int:
    """The server is back, without what it had not brought to the disk; how many bytes are gone."""
    fsync = place.redis.options["appendfsync"]
    path = place.file
    if fsync == "everysec":
        safe = path.stat().st_size
        give_up = time.monotonic() + WINDOW
        while time.monotonic() < give_up:  # the workers go on
            crowd.tend(0.02)
        place.kill()
        size = path.stat().st_size
    else:
        place.kill()
        size = safe = path.stat().st_size
    with path.open("r+b") as opened:
        opened.truncate(safe)  # Redis itself drops the command that is cut in half
    place.start()
    return size - safe


def cut_postgres(place: PostgresPlace, crowd: Crowd) -> int:
    """The same for PostgreSQL: its log is blank from where it had been flushed to."""
    stand_still(crowd)
    with place.connect() as connection:
        # What is being done is done to its end: its answer waits for a worker in the socket.
        wait_until(lambda: connection.execute(IDLE).fetchone() == (0,), "the server is idle")
        row = connection.execute(
            "SELECT file_name, file_offset, pg_current_wal_insert_lsn() - flushed, flushed"
            " FROM (SELECT pg_current_wal_flush_lsn() AS flushed) AS now,"
            " pg_walfile_name_offset(flushed)"
        ).fetchone()
    assert row is not None
    name, offset, unflushed = row[0], int(row[1]), int(row[2])
    place.kill()
    log = place.data / "pg_wal"
    with (log / name).open("r+b") as segment:
        segment.seek(offset)
        segment.write(b"\0" * (SEGMENT - offset))
    for later in log.glob("0*"):
        if later.name > name and len(later.name) == len(name):
            later.write_bytes(b"\0" * SEGMENT)  # made in advance, and reused
    place.start()
    go_on(crowd)
    return unflushed


def stand_still(crowd: Crowd) -> None:
    """Every worker stands still, so that nobody is answered any more."""
    crowd.tend(0)
    for name in list(crowd.running):
        crowd.stop(name)

    def still() -> bool:
        crowd.tend(0)
        return set(crowd.stopped()) == set(crowd.running)

    wait_until(still, "the workers stand still")


def go_on(crowd: Crowd) -> None:
    """They go on."""
    for name in list(crowd.running):
        crowd.go_on(name)
