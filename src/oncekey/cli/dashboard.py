"""`oncekey dashboard`: serve the dashboard on this machine, for one person."""

import secrets
import socket
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from oncekey import Once
from oncekey.cli.errors import WRONG, CommandError
from oncekey.cli.options import OutboxUrl, StoreUrl, opened_records, outbox_of, who
from oncekey.extras import needing
from oncekey.inspection.listing import count_records
from oncekey.outbox.lookup import existing_outbox

_HOST: Final = "127.0.0.1"


def dashboard(
    *,
    ctx: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0: any that is free.")
    ] = 8642,
    show_results: Annotated[
        bool,
        typer.Option("--show-results", help="Show results, notes and errors; they may be secret."),
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Look only: nothing can be changed.")
    ] = False,
    trace_url: Annotated[
        str,
        typer.Option(metavar="URL", help="The address of a trace, with {trace} for its id."),
    ] = "",
    outbox: OutboxUrl = None,
    store: StoreUrl = None,
) -> None:
    """Look at the records in a browser, on this machine only."""
    with opened_records(ctx, store) as once:
        # Ask the store first: if it does not answer, the command ends here and prints the reason.
        count_records(once.store)
        with _listening(port) as line:
            _serve(
                once,
                line,
                show_results=show_results,
                read_only=read_only,
                trace_url=trace_url or None,
                inbox=_inbox(ctx.obj.url),
                outbox=_outbox(ctx, outbox),
            )


def _inbox(url: str) -> str | None:
    """Return the URL if its database has an inbox, too."""
    from oncekey.messages.dead_letters import dead_letters

    return url if dead_letters(url, limit=1) is not None else None


def _outbox(ctx: typer.Context, typed: str | None) -> str | None:
    """Return the URL that was typed, or that of the store if its database has an outbox, too."""
    url = outbox_of(ctx, typed)
    if url is None or typed is not None:
        return url
    with existing_outbox(url) as found:
        return None if found is None else url


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        msg = f"port {port} cannot be used ({error.strerror}); --port 0 takes one that is free"
        raise CommandError(msg, WRONG) from None


def _serve(once: Once, line: socket.socket, **options: Any) -> None:
    """Print the link and serve the dashboard until the command is stopped."""
    with needing("dashboard", "the dashboard"):
        import uvicorn

        from oncekey.dashboard import Dashboard
    board = Dashboard(
        once,
        token=secrets.token_urlsafe(32),  # not printed: the ticket lets the user in
        watch=False,
        **options,
    )
    config = uvicorn.Config(
        board,
        access_log=False,
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    where = f"http://{_HOST}:{line.getsockname()[1]}"
    typer.echo(f"{where}/enter?ticket={board.ticket(who())}")
    typer.echo("The link works once, within 15 minutes. Ctrl-C ends the dashboard.", err=True)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[line])
