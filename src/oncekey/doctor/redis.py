"""The doctor's checks of Redis and Valkey: eviction, restarts, fail-overs and its clock."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, Final

from msgspec import Struct
from redis.exceptions import ResponseError

from oncekey.doctor.examination import Examination, Refused, conduct, conduct_async
from oncekey.doctor.finding import Finding, danger, fine, held_since, unread, warning
from oncekey.doctor.lifetimes import Expected, Retention, retained, skewed
from oncekey.stores.redis.browse import COMPARE
from oncekey.stores.redis.commands import held_set, pattern_of
from oncekey.stores.redis.errors import CAUGHT, explain

Words = tuple[Any, ...]

_OLDEST: Final = (6, 2)
_NEARLY_FULL: Final = 0.9
_LOOKED_AT: Final = 100
_MORE: Final = ("min-replicas-to-write", "no-appendfsync-on-rewrite")
_STEPS: Final = 20
_AWAY: Final = 60_000
"""Milliseconds after which a router that has not asked for events is away."""
_COMPARED: Final = 500
"""The number of records in each step that are compared with the set of held ones."""
_GRANT: Final = "grant this user +info and +config|get, or ask whoever runs the server"


class Server(Struct, frozen=True, kw_only=True):
    """What is known of the server before it is asked."""

    prefix: str = ""
    needed: int = 0
    """The number of replicas that a claim waits for."""
    cluster: bool = False
    """Whether the client is one for a cluster."""
    asked: Expected = Expected()


class Facts(Struct, kw_only=True):
    """What the server answered. What it refused is missing."""

    info: dict[str, Any]
    unread: str
    """The reason why INFO or CONFIG was not answered."""
    settings: dict[str, str]


def examination(server: Server) -> Examination[Words]:
    """Check everything that can be read from one server."""
    facts = yield from _facts()
    findings = list(_findings(facts, server))
    before = time.time()
    reply = yield ("TIME",)
    if not isinstance(reply, Refused):
        doubt = (time.time() - before) / 2
        theirs = float(reply[0]) + float(reply[1]) / 1e6
        findings.append(skewed("redis.clock", theirs - before - doubt, doubt))
    if not server.cluster and not int(facts.info.get("cluster_enabled", 0)):
        findings.append((yield from _held(server)))
        findings += yield from _held_long(server)
    if server.asked.events is not None:
        findings += yield from _router(server.asked.events)
        findings += yield from _retention(server.asked.events)
    return findings


def _facts() -> Generator[Words, Any, Facts]:
    reply = yield ("INFO",)
    refused = f"INFO: {reply.words}" if isinstance(reply, Refused) else ""
    info = {} if isinstance(reply, Refused) else dict(reply)
    settings: dict[str, str] = {}
    # INFO has the first two as well, if a managed server hides CONFIG.
    for name in ("maxmemory-policy", "appendonly", "appendfsync", *_MORE):
        reply = yield ("CONFIG GET", name)
        if isinstance(reply, Refused):
            refused = refused or f"CONFIG GET: {reply.words}"
            break
        settings |= {_text(one): _text(value) for one, value in dict(reply).items()}
    return Facts(info=info, unread=refused, settings=settings)


def _findings(facts: Facts, server: Server) -> Iterator[Finding]:
    yield _version(facts)
    yield _role(facts)
    yield from _cluster(facts, server)
    yield _eviction(facts)
    yield from _memory(facts)
    yield from _persistence(facts)
    yield _replication(facts, server)


def _version(facts: Facts) -> Finding:
    check, said = "redis.version", facts.info.get("redis_version")
    if said is None:
        return unread(check, "the version of the server", facts.unread, "it must be 6.2 or newer")
    evidence = f"redis_version={said}"
    numbers = tuple(int(part) for part in str(said).split(".")[:2] if part.isdecimal())
    if numbers >= _OLDEST:
        return fine(check, "the server is new enough", evidence)
    return danger(
        check, "the server is too old for the scripts", evidence, "upgrade to 6.2 or newer"
    )


def _role(facts: Facts) -> Finding:
    check, role = "redis.role", facts.info.get("role")
    if role is None:
        return unread(check, "whether the server takes writes", facts.unread, _GRANT)
    if role == "master":
        return fine(check, "the server takes writes", f"role={role}")
    fix = "give the address of the primary, or use Sentinel"
    return danger(check, "the server is a replica: every claim is refused", f"role={role}", fix)


def _cluster(facts: Facts, server: Server) -> Iterator[Finding]:
    check = "redis.cluster"
    if not int(facts.info.get("cluster_enabled", 0)):
        return
    evidence = "cluster_enabled=1"
    if not server.cluster:
        meaning = "the server is a node of a cluster, and the client does not know the others"
        yield danger(check, meaning, evidence, "pass RedisStore(redis.RedisCluster(...))")
    elif "{" in server.prefix and "}" in server.prefix.partition("{")[2]:
        meaning = "the prefix has a hash tag, which puts every record on one node"
        evidence = f"{evidence}, prefix={server.prefix!r}"
        yield warning(check, meaning, evidence, "take the braces out of the prefix")
    else:
        yield fine(check, "records spread over the nodes of the cluster", evidence)


def _eviction(facts: Facts) -> Finding:
    check = "redis.eviction"
    policy = facts.info.get("maxmemory_policy") or facts.settings.get("maxmemory-policy")
    if policy is None:
        what = "what the server does when its memory is full"
        return unread(check, what, facts.unread, f"maxmemory-policy must be noeviction; {_GRANT}")
    evidence = f"maxmemory-policy={policy}, maxmemory={facts.info.get('maxmemory', 'unknown')}"
    if policy == "noeviction":
        meaning = "a full server refuses new claims, and loses no record"
        return fine(check, meaning, evidence)
    meaning = "a full server removes records, and what they protect runs again"
    if str(policy).startswith("volatile"):
        meaning += "; records have a time to live, so they go first"
    fix = "set maxmemory-policy to noeviction, on a server that holds no cache"
    return danger(check, meaning, evidence, fix)


def _memory(facts: Facts) -> Iterator[Finding]:
    used, most = int(facts.info.get("used_memory", 0)), int(facts.info.get("maxmemory", 0))
    if most and used > _NEARLY_FULL * most:
        evidence = f"used_memory={used}, maxmemory={most}"
        meaning = "the server is nearly full, and will refuse new claims"
        yield warning("redis.memory", meaning, evidence, "raise maxmemory, or shorten ttl")


def _persistence(facts: Facts) -> Iterator[Finding]:
    check, enabled = "redis.persistence", facts.info.get("aof_enabled")
    if enabled is None and "appendonly" in facts.settings:
        enabled = facts.settings["appendonly"] == "yes"
    if enabled is None:
        what = "whether records survive a restart of the server"
        yield unread(check, what, facts.unread, f"appendonly must be yes; {_GRANT}")
    elif not int(enabled):
        meaning = "a restart forgets records: all of them, or those since the last snapshot"
        fix = "set appendonly to yes, with appendfsync everysec or always"
        yield danger(check, meaning, "appendonly=no", fix)
    elif facts.info.get("aof_last_write_status", "ok") != "ok":
        meaning = "the server could not write its append-only file"
        evidence = f"aof_last_write_status={facts.info['aof_last_write_status']}"
        yield danger(check, meaning, evidence, "see the log of the server, and its disk")
    else:
        yield fine(check, "records survive a restart of the server", "appendonly=yes")
        yield _fsync(facts)
        if facts.settings.get("no-appendfsync-on-rewrite") == "yes":
            meaning = "while the server rewrites its file, a power cut loses up to half a minute"
            evidence, fix = "no-appendfsync-on-rewrite=yes", "set no-appendfsync-on-rewrite to no"
            yield warning("redis.rewrite", meaning, evidence, fix)


def _fsync(facts: Facts) -> Finding:
    check, fsync = "redis.fsync", facts.settings.get("appendfsync")
    if fsync is None:
        what = "what a power cut loses"
        return unread(check, what, facts.unread, "appendfsync should be everysec or always")
    evidence = f"appendfsync={fsync}"
    if fsync == "always":
        return fine(check, "a power cut loses no record that was answered", evidence)
    if fsync == "everysec":
        return fine(check, "a power cut loses about the last second", evidence)
    meaning = "a power cut loses what the system had not written yet, half a minute or so"
    return warning(check, meaning, evidence, "set appendfsync to everysec or always")


def _replication(facts: Facts, server: Server) -> Finding:
    check, replicas = "redis.replication", facts.info.get("connected_slaves")
    if replicas is None:
        what = "whether a fail-over can lose records"
        return unread(check, what, facts.unread, f"use wait= where there are replicas; {_GRANT}")
    least = facts.settings.get("min-replicas-to-write")
    evidence = (
        f"connected_slaves={replicas}, min-replicas-to-write={least or 'unknown'}, "
        f"wait={server.needed or 'off'}"
    )
    if server.needed > int(replicas):
        meaning = "a claim waits for more replicas than there are: every claim is refused"
        return danger(check, meaning, evidence, "start the replicas, or lower wait")
    if not int(replicas):
        return fine(check, "there is no replica, so no fail-over can lose records", evidence)
    if server.needed:
        return fine(check, "a claim waits until replicas have it", evidence)
    if int(least or 0):
        meaning = "a claim does not wait for replicas: a fail-over loses those of the last moment"
        fix = "let claims wait, as in redis://host/0?wait=1,100ms"
        return warning(check, meaning, evidence, fix)
    meaning = "a fail-over loses records that no replica had yet, and what they protect runs again"
    fix = "let claims wait, as in redis://host/0?wait=1,100ms, and set min-replicas-to-write to 1"
    return warning(check, meaning, evidence, fix)


def _held(server: Server) -> Generator[Words, Any, Finding]:
    """Compare the set of held records with a part of the records."""
    check, held = "redis.held", held_set(server.prefix.encode())
    pattern = pattern_of(server.prefix.encode())
    cursor, looked_at, wrong = 0, 0, 0
    names = yield ("ZRANGE", held, 0, _COMPARED)
    for step in range(_STEPS + 1):
        if step:
            names = yield ("SCAN", cursor, "MATCH", pattern, "COUNT", _COMPARED)
            if not isinstance(names, Refused):
                cursor, names = int(names[0]), names[1]
        if not isinstance(names, Refused) and names:
            looked_at += len(names)
            names = yield ("EVAL", COMPARE, 1, held, 0, *names)
            wrong += 0 if isinstance(names, Refused) else sum(names)
        if isinstance(names, Refused):
            what, fix = "whether all held records are counted", "grant this user +@read and +eval"
            return unread(check, what, names.words, fix)
        if step and not cursor:
            break
    evidence = f"{wrong} of {looked_at} records differ from the set {_text(held)}"
    if not wrong:
        return fine(check, "the held records and the set that counts them agree", evidence)
    meaning = "the number of held records is wrong: something other than oncekey changed records"
    return warning(check, meaning, evidence, "run `oncekey migrate`, which corrects the set")


def _held_long(server: Server) -> Generator[Words, Any, list[Finding]]:
    """Return for how long the oldest held record is held."""
    held = held_set(server.prefix.encode())
    count = yield ("ZCARD", held)
    oldest = yield ("EVAL", _HELD_FOR, 1, held)
    if isinstance(count, Refused) or isinstance(oldest, Refused):
        return []
    return [held_since("redis.held_long", count, oldest / 1e6 if count else None)]


_HELD_FOR: Final = """
local oldest, clock = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'), redis.call('TIME')
return oldest[2] and clock[1] * 1000000 + clock[2] - tonumber(oldest[2]) or 0
"""


def _router(events: Retention) -> Generator[Words, Any, list[Finding]]:
    """Return whether a router reads the events of each shard that has some."""
    check, away = "events.router", []
    stored = yield ("GET", f"{{{events.domain}}}:shards")
    shards = events.shards if isinstance(stored, Refused) or stored is None else int(stored)
    seen = 0
    for shard in range(shards):
        stream = f"{{{events.domain}:{shard}}}:events"
        length = yield ("XLEN", stream)
        if isinstance(length, Refused) or not length:
            continue
        seen += 1
        groups = yield ("XINFO GROUPS", stream)
        idle = [_AWAY]
        for group in () if isinstance(groups, Refused) else groups:
            consumers = yield ("XINFO CONSUMERS", stream, group["name"])
            idle += [] if isinstance(consumers, Refused) else [one["idle"] for one in consumers]
        if min(idle) >= _AWAY:
            away.append(str(shard))
    if not seen:
        return []
    if not away:
        return [fine(check, "routers read the events of the domain", f"shards with events={seen}")]
    meaning = "no router reads these events: states do not change, and the streams are not trimmed"
    evidence = f"shards without a router for a minute={', '.join(away)}"
    fix = f"start `oncekey router --domain {events.domain}`, and see that it goes on running"
    return [warning(check, meaning, evidence, fix)]


def _retention(events: Retention) -> Generator[Words, Any, list[Finding]]:
    """Return whether the logs of some jobs of the domain last as long as their markers."""
    seen: list[Finding] = []
    stored = yield ("GET", f"{{{events.domain}}}:shards")
    shards = events.shards if isinstance(stored, Refused) or stored is None else int(stored)
    for shard in range(shards):
        place = f"{{{events.domain}:{shard}}}:"
        reply = yield ("SCAN", 0, "MATCH", f"{place}job:*", "COUNT", _LOOKED_AT)
        if isinstance(reply, Refused):
            what, fix = "how long logs of events are kept", "grant this user +scan"
            return [unread("events.retention", what, f"SCAN: {reply.words}", fix)]
        for name in reply[1]:
            job = _text(name).removeprefix(f"{place}job:")
            markers = yield ("PTTL", name)
            log = yield ("PTTL", f"{place}log:{job}")
            begun = yield ("HEXISTS", name, "epoch")  # else somebody waits for its first event
            if begun == 1 and isinstance(markers, int) and isinstance(log, int) and markers > 0:
                seen.append(retained(log, markers, f"{place}log:{job}"))
    bad = [finding for finding in seen if finding.severity != "fine"]
    return bad or seen[:1]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# Sending the doctor's questions to Redis, blocking and async; of a cluster, to every primary.


def of_store(store: Any, asked: Expected) -> list[Finding]:
    """Return the findings about the store's server, or all servers of its cluster."""
    clients = store.clients
    try:
        client = clients.client()
        found: list[Finding] = []
        for options in _nodes(client):

            def ask(words: Words, options: dict[str, Any] = options) -> Any:
                try:
                    return client.execute_command(*words, **options)
                except ResponseError as error:
                    return Refused(str(error))

            found += conduct(examination(_server(store, client, asked)), ask)
    except CAUGHT as error:
        raise explain(error, clients.where, sent_once=True) from error
    return _each_once(found)


async def of_store_async(store: Any, asked: Expected) -> list[Finding]:
    """Return the findings about the store's server, or all servers of its cluster."""
    clients = store.clients
    try:
        client = await clients.client()
        if _of_cluster(client):
            await client.initialize()
        found: list[Finding] = []
        for options in _nodes(client):

            async def ask(words: Words, options: dict[str, Any] = options) -> Any:
                try:
                    return await client.execute_command(*words, **options)
                except ResponseError as error:
                    return Refused(str(error))

            found += await conduct_async(examination(_server(store, client, asked)), ask)
    except CAUGHT as error:
        raise explain(error, clients.where, sent_once=True) from error
    return _each_once(found)


def _server(store: Any, client: Any, asked: Expected) -> Server:
    wanted = store.replicas
    return Server(
        prefix=store.prefix.decode(),
        needed=0 if wanted is None else wanted.needed,
        cluster=_of_cluster(client),
        asked=asked,
    )


def _of_cluster(client: Any) -> bool:
    return callable(getattr(client, "get_primaries", None))


def _nodes(client: Any) -> list[dict[str, Any]]:
    """Return the options that address each server."""
    if not _of_cluster(client):
        return [{}]
    return [{"target_nodes": node} for node in client.get_primaries()]


def _each_once(findings: list[Finding]) -> list[Finding]:
    """Return the findings without repetitions from several nodes."""
    return list(dict.fromkeys(findings))
