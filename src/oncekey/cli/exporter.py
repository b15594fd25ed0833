"""`oncekey exporter`: serve the numbers of the store and the outbox to Prometheus."""

from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated

import typer

from oncekey.cli.errors import WRONG, CommandError
from oncekey.cli.options import OutboxUrl, StoreUrl, opened_records, outbox_of
from oncekey.exporter import CONTENT_TYPE, exposition
from oncekey.inspection.listing import count_records
from oncekey.stores import Store


def exporter(
    *,
    ctx: typer.Context,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="The address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0: any that is free.")
    ] = 8643,
    outbox: OutboxUrl = None,
    store: StoreUrl = None,
) -> None:
    """Export to Prometheus how many records are held, and what waits in an outbox."""
    with opened_records(ctx, store) as once:
        count_records(once.store)  # raises if the store does not answer
        answering = _answering(once.store, outbox_of(ctx, outbox))
        try:
            server = ThreadingHTTPServer((host, port), answering)
        except OSError as error:
            msg = f"{host}:{port} cannot be used ({error.strerror}); --port 0 takes a free port"
            raise CommandError(msg, WRONG) from None
        with server, suppress(KeyboardInterrupt):
            typer.echo(f"http://{host}:{server.server_port}/metrics")
            server.serve_forever()


def _answering(store: Store, outbox: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = (exposition(store, outbox) if found else "see /metrics\n").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Write nothing: Prometheus asks every few seconds."""

    return Handler
