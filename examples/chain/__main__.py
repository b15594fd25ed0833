"""Orders, charges and mails, though everything is killed at random; exit with 0 if all was once."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from examples.chain.chain import Chain, Settings, on_files
from examples.chain.services import SERVICES


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m examples.chain", description=__doc__)
    parser.add_argument("--orders", type=int, default=100)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1, help="who is killed when")
    parser.add_argument("--page", type=int, metavar="PORT", help="show every order's way instead")
    parser.add_argument(
        "--database",
        action="append",
        default=[],
        metavar="URL",
        help="of orders, payments and mail, in this order; files unless given",
    )
    parser.add_argument("--first", metavar="URL", help="nats://, redis:// or sqlite:///")
    parser.add_argument("--second", metavar="URL", help="the broker between payments and mail")
    said = parser.parse_args()
    if said.page is not None:
        from examples.chain.site import serve

        return serve(said.page)
    with tempfile.TemporaryDirectory(prefix="oncekey-chain-") as name:
        settings = on_files(Path(name), said.orders)
        if said.database:
            if len(said.database) != len(SERVICES) or not (said.first and said.second):
                parser.error("give three databases and two brokers, or none of them")
            databases = dict(zip(SERVICES, said.database, strict=True))
            settings = Settings(
                databases=databases, first=said.first, second=said.second, orders=said.orders
            )
        begun = time.monotonic()
        with Chain(settings, seed=said.seed) as chain:
            chain.run(kills=said.kills)
            totals = chain.totals()
    print(f"{totals}; {time.monotonic() - begun:.1f} s")
    return 1 if totals.lost or totals.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
