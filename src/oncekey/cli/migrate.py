"""`oncekey migrate`: bring the tables of the store to the schema of this release."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, cast

import typer

from oncekey.cli.options import Json, StoreUrl, chosen_store, is_mysql, is_postgres
from oncekey.cli.output import print_json
from oncekey.cli.sqlite_tables import make_indexes, schema_of
from oncekey.stores import SQLiteStore, Store

_ANY_KEY: Final = "oncekey migrate"
"""The key that is read to make the store bring its schema up to date."""


def migrate(*, ctx: typer.Context, as_json: Json = False, store: StoreUrl = None) -> None:
    """Bring the tables of the store up to date, and say how."""
    steps = 0
    for done in _done(chosen_store(ctx, store), ctx.obj.url):
        steps += 1
        _say(done, as_json=as_json)
    if not steps:
        _say("everything is up to date", as_json=as_json)


def _say(done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"done": done})
    else:
        typer.echo(done)


def _done(store: Store, url: str) -> Iterator[str]:
    if is_postgres(store):
        from oncekey.cli.postgres_tables import migrated

        yield from migrated(url)
        return
    if is_mysql(store):
        from oncekey.cli import mysql_tables

        yield from mysql_tables.migrated(url)
        return
    with closing(store):
        before = schema_of(store) if isinstance(store, SQLiteStore) else None
        store.get(None, _ANY_KEY)  # raises if the server does not answer
        if type(store).__name__ == "RedisStore":
            from oncekey.stores import RedisStore
            from oncekey.stores.redis.browse import correct_held

            if corrected := correct_held(cast("RedisStore", store)):
                yield f"corrected the set of held records, in {corrected} places"
        if not isinstance(store, SQLiteStore):
            return
        after = schema_of(store)
        if before is None:
            yield f"made the tables in {store.path}, schema {after}"
        elif before != after:
            yield f"brought the schema of {store.path} from {before} to {after}"
        for name in make_indexes(store):
            yield f"made the index {name}"
