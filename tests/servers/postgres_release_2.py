"""What the release that knew two migrations says to PostgreSQL, word for word.

A copy, made when that schema was the newest. It is not brought up to date: it stands for the
processes of that release which go on running while a newer one changes the schema.
"""

KNOWN = 2
"""How many migrations it knows: it refuses a schema whose `oldest` is more."""

TEXTS = ("scope", "key", "status", "fingerprint", "nonce", "label", "reference")
BYTES = ("result", "error", "noted", "uncertain")
COLUMNS = (
    "scope", "key", "status", "fingerprint", "token", "nonce", "attempt", "lease_end", "result",
    "error", "noted", "revision", "uncertain", "label", "reference", "created", "started",
    "updated", "finished", "expires", "version",
)  # fmt: skip
"""The first columns of a row; it reads no others, and reads by position."""

READ = "SELECT version || ' ' || oldest FROM oncekey_schema"
CLAIM = (
    "SELECT oncekey_claim_v1(%s::text, %s::text, %s::text, %s::text, %s::bigint, %s::bigint, "
    "%s::boolean, %s::bigint, %s::text, %s::text)"
)
RENEW = "SELECT oncekey_renew_v1(%s::text, %s::text, %s::bigint, %s::text, %s::bigint, %s::bigint)"
NOTE = "SELECT oncekey_note_v1(%s::text, %s::text, %s::bigint, %s::text, %s::bytea, %s::bigint)"
SETTLE = (
    "SELECT oncekey_settle_v1(%s::text, %s::text, %s::bigint, %s::text, %s::text, %s::bytea, "
    "%s::bytea, %s::bigint)"
)
RELEASE = (
    "SELECT oncekey_release_v1(%s::text, %s::text, %s::bigint, %s::text, %s::bytea, %s::boolean, "
    "%s::boolean, %s::boolean, %s::bigint, %s::bigint)"
)
RESOLVE = (
    "SELECT oncekey_resolve_v1(%s::text, %s::text, %s::bigint, %s::text, %s::bytea, %s::bytea, "
    "%s::bigint)"
)
FORGET = "SELECT oncekey_forget_v1(%s::text, %s::text, %s::bigint, %s::boolean)"
WATCH = "SELECT oncekey_watch_v1(%s::text, %s::text, %s::bigint)"
PURGE = "SELECT oncekey_purge_v1(%s::bigint, %s::bigint)"
GET = (
    "SELECT t FROM oncekey_records t WHERE t.scope = %s AND t.key = %s AND "
    "(t.expires = 0 OR t.expires > (SELECT oncekey_now_v1()))"
)
MINUTE = 60_000_000


def fields(data, count):
    """The first fields of a row: before each stand its type and its length."""
    found, at = [], 4
    for _ in range(count):
        length = int.from_bytes(data[at + 4 : at + 8], signed=True)
        at += 8
        found.append(None if length < 0 else data[at : at + length])
        at += max(length, 0)
    return found


def record(data):
    """The columns of a row by their names."""
    found = dict(zip(COLUMNS, fields(data, len(COLUMNS)), strict=True))
    for name, field in found.items():
        if field is not None and name in TEXTS:
            found[name] = field.decode()
        elif field is not None and name not in BYTES:
            found[name] = int.from_bytes(field, signed=True)
    return found


class Release2:
    """A process of that release, on a connection that it keeps."""

    def __init__(self, connection):
        self._connection = connection

    def raw(self, statement, *values):
        """The one value that a statement answers, in binary; it was prepared long ago."""
        cursor = self._connection.execute(statement, values, prepare=True, binary=True)
        return cursor.pgresult.get_value(0, 0)

    def word(self, statement, *values):
        """The same where it is a text."""
        return self.raw(statement, *values).decode()

    def number(self, statement, *values):
        """The same where it is a number."""
        return int.from_bytes(self.raw(statement, *values), signed=True)

    def claim(self, key, nonce):
        """What it is told, and the record; a new one is not sent."""
        asked = ("", key, nonce, "1:same", MINUTE, MINUTE, False, None, "label", "")
        told, now, row = fields(self.raw(CLAIM, *asked), 3)
        if row is None:
            token = int.from_bytes(now)
            return told.decode(), {"token": token, "nonce": nonce, "status": "running"}
        return told.decode(), record(row)

    def get(self, key):
        """The living record."""
        return record(self.raw(GET, "", key))

    def owner(self, statement, key, record, *values):
        """A write of the record's owner."""
        return self.word(statement, "", key, record["token"], record["nonce"], *values)
