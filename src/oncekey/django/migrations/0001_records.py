"""Make the tables of the store, or bring those that are there up to date."""

from __future__ import annotations

from contextlib import closing
from typing import Any, ClassVar

from django.db import (  # type: ignore[import-untyped]  # Django brings no types
    migrations,
    models,
)

from oncekey.stores.django import DjangoStore


def make_tables(_apps: Any, schema_editor: Any) -> None:
    """Let the store of this alias make its tables, as it does at its first use."""
    with closing(DjangoStore(schema_editor.connection.alias).behind) as store:
        store.get(None, "manage.py migrate")


class Migration(migrations.Migration):  # type: ignore[misc]  # Django brings no types
    """It is not atomic: the store works on a connection of its own, and waits for nobody."""

    atomic = False
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Record",
            fields=[("place", models.TextField(primary_key=True, serialize=False))],
            options={
                "db_table": "oncekey_records",
                "default_permissions": ("view", "change", "delete"),
                "managed": False,
            },
        ),
        # The way back leaves the tables, because what is recorded there is not to run again.
        migrations.RunPython(make_tables, migrations.RunPython.noop),
    ]
