"""The options that several commands share."""

from typing import Annotated, Final, NamedTuple

import typer

from oncekey.cli.completing import keys

DEFAULT_STORE: Final = "sqlite:///oncekey.db"
STORE_VARIABLES: Final = ("ONCEKEY_STORE", "REDIS_URL")


class Chosen(NamedTuple):
    """The store of this run, and whether it was typed or comes from the settings."""

    url: str
    typed: bool


Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The key as `ls` prints it: scope/key, or the key alone.",
        show_default=False,
        autocompletion=keys,
    ),
]
Scope = Annotated[
    str | None,
    typer.Option(metavar="SCOPE", help="The scope; KEY is then the key as it is. '' for none."),
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="As `oncekey --store`, for this command."),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object per line.")]
Redact = Annotated[
    bool, typer.Option("--redact", help="Hash keys and scopes; leave out what may be personal.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first, as on a terminal.")]
