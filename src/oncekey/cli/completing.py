"""What a shell is offered when somebody presses the tabulator."""

from typing import Final

import typer

from oncekey import OncekeyError
from oncekey.core.key import stored_key
from oncekey.inspection.listing import list_records
from oncekey.stores.browse import RecordQuery

_OFFERED: Final = 200


def keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """The newest keys that start so; none where the store cannot be read."""
    from oncekey.cli.opening import records, remembered  # noqa: PLC0415 - they import the options

    remembered(ctx, ctx.find_root().params.get("store"))
    try:
        with records(ctx, ctx.params.get("store")) as once:
            sight = list_records(once.store, RecordQuery(limit=_OFFERED))
    except OncekeyError:
        return []
    names = [stored_key(record.scope, record.key) for record in sight.records]
    return [name for name in names if name.startswith(incomplete)]
