"""What the admin and the permissions of Django need to know of a record."""

from __future__ import annotations

from django.db import models  # type: ignore[import-untyped]  # Django brings no types


class Record(models.Model):  # type: ignore[misc]  # Django brings no types
    """A record of the store. It is read and changed through the store, never through the ORM."""

    place = models.TextField(primary_key=True)

    class Meta:
        """Its table is the store's."""

        managed = False
        db_table = "oncekey_records"
        default_permissions = ("view", "change", "delete")

    def __str__(self) -> str:
        """Return scope and key."""
        return str(self.place)
