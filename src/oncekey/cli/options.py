"""The options that several commands share."""

from typing import Annotated, Final, NamedTuple

import typer

DEFAULT_STORE: Final = "sqlite:///oncekey.db"
STORE_VARIABLES: Final = ("ONCEKEY_STORE", "REDIS_URL")


class Chosen(NamedTuple):
    """The store of this run, and whether it was typed or comes from the settings."""

    url: str
    typed: bool


Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, as it is.", show_default=False)]
Scope = Annotated[
    str | None,
    typer.Option(metavar="SCOPE", help="The scope of the key; leave it out for a key without one."),
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="As `oncekey --store`, for this command."),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object per line.")]


def scope_of(typed: str | None) -> str | None:
    """The scope that was typed; an empty one stands for none."""
    return typed or None
