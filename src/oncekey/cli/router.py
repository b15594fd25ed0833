"""`oncekey router`: run the router of a domain of events until it is stopped."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncekey.cli.options import Json, StoreUrl, remember_store
from oncekey.cli.service import stopped_by_signals, told
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.policy import seconds
from oncekey.stores.url import safe_url

if TYPE_CHECKING:
    from oncekey.events.observers import Happening


_COUNTED: Final = ("routed", "reclaimed", "trimmed", "dead", "lost")


class RouterCounts:
    """Count what a router has done so far. Several threads may call it."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, happening: Happening, /) -> None:
        """Add what the router reports to the counts."""
        with self._lock:
            self._counts[happening.name] += happening.count

    def fields(self) -> dict[str, Any]:
        """Return the counts as fields, for `--json`."""
        with self._lock:
            return {"domain": self._domain, **{name: self._counts[name] for name in _COUNTED}}

    def line(self) -> str:
        """Return the counts as one line, for people."""
        fields = self.fields()
        counts = ", ".join(f"{fields[name]} {name}" for name in _COUNTED)
        return f"{self._domain}: {counts}"


_SCHEMES: Final = ("redis", "rediss", "unix")


def router(
    *,
    ctx: typer.Context,
    domain: Annotated[str, typer.Option(metavar="NAME", help="The domain of the events.")],
    shards: Annotated[int, typer.Option(min=1, metavar="N", help="As its publishers have it.")] = 4,
    group: Annotated[str, typer.Option(metavar="NAME", help="The consumer group.")] = "router",
    claim_after: Annotated[
        str, typer.Option(metavar="TIME", help="Take over what another router has had so long.")
    ] = "30s",
    max_deliveries: Annotated[
        int, typer.Option(min=1, metavar="N", help="After so many failures an entry is dead.")
    ] = 5,
    length: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trim a stream to about this.")
    ] = 10_000,
    state_ttl: Annotated[
        str, typer.Option(metavar="TIME", help="How long the state of a job is kept.")
    ] = "1h",
    marker_ttl: Annotated[
        str, typer.Option(metavar="TIME", help="As its publishers have it.")
    ] = "2h",
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often to print the counts; 0: at the end.")
    ] = "1min",
    cluster: Annotated[
        bool, typer.Option("--cluster", help="The store is one node of a Redis Cluster.")
    ] = False,
    sentinel: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The store is a Sentinel, which knows this primary."),
    ] = None,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Keep the state of jobs and wake those who watch them, until SIGTERM or Ctrl-C."""
    from oncekey.events import Router

    period = seconds(every, "every", zero=True)
    tally = RouterCounts(domain)
    made = Router(
        _client(_redis(ctx, store), cluster=cluster, sentinel=sentinel),
        domain=domain,
        shards=shards,
        group=group,
        claim_after=claim_after,
        max_deliveries=max_deliveries,
        length=length,
        state_ttl=state_ttl,
        marker_ttl=marker_ttl,
        observers=(tally,),
    )
    try:
        with stopped_by_signals(made), told(tally, period, as_json=as_json):
            made.run()
    finally:
        made.close()


def _redis(ctx: typer.Context, typed: str | None) -> str:
    """Return the URL of Redis. Raise `ConfigurationError` if the store is another one.

    The message does not repeat the URL, because it may hold a password.
    """
    if typed is not None:
        remember_store(ctx, typed, typed=True)
    url: str = ctx.obj.url
    if url.partition("://")[0] not in _SCHEMES:
        msg = "a router reads streams of Redis; name one with --store or $ONCEKEY_STORE"
        raise ConfigurationError(msg)
    return url


def _client(url: str, *, cluster: bool, sentinel: str | None) -> Any:
    """Return what a router reads from: the URL, or a client of a cluster or of Sentinel."""
    if cluster and sentinel is not None:
        raise ConfigurationError("give --cluster or --sentinel, not both")
    if not cluster and sentinel is None:
        return url
    with needing("redis", "a router"):
        import redis
        from redis.exceptions import RedisClusterException, RedisError
        from redis.sentinel import Sentinel

        from oncekey.stores.redis.client import Clients

    Clients.of_url(url)  # raises an error that tells no password, if the URL is not understood
    if cluster:
        try:
            return redis.RedisCluster.from_url(url)
        except (RedisError, RedisClusterException) as error:
            msg = f"the cluster at {safe_url(url)} cannot be used: {error}"
            raise ConfigurationError(msg) from error
    pool = redis.ConnectionPool.from_url(url)
    facts = dict(pool.connection_kwargs)
    if "path" in facts:
        raise ConfigurationError("a Sentinel has a host and a port; give redis:// or rediss://")
    place = (facts.pop("host", "localhost"), facts.pop("port", 26379))
    secure = {name: value for name, value in facts.items() if name.startswith("ssl_")}
    if issubclass(pool.connection_class, redis.SSLConnection):
        secure["ssl"] = facts["ssl"] = True
    found: Any = Sentinel([place], sentinel_kwargs=secure)  # type: ignore[no-untyped-call]  # redis-py has no types here
    return found.master_for(sentinel, **facts)
