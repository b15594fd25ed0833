"""How the doctor's questions reach a Redis, in both colours; of a cluster, every primary."""

from __future__ import annotations

from typing import Any

from redis.exceptions import ResponseError

from oncekey.doctor.finding import Finding
from oncekey.doctor.lifetimes import Asked
from oncekey.doctor.redis import Patient, Words, talk
from oncekey.doctor.talk import Refused, carry, carry_async
from oncekey.stores.redis.errors import CAUGHT, explain


def of_store(store: Any, asked: Asked) -> list[Finding]:  # noqa: ANN401 - a RedisStore
    """What was found on its server, or on the servers of its cluster."""
    clients = store._clients  # noqa: SLF001 - the doctor looks inside
    try:
        client = clients.client()
        found: list[Finding] = []
        for options in _nodes(client):

            def ask(words: Words, options: dict[str, Any] = options) -> Any:  # noqa: ANN401 - any reply
                try:
                    return client.execute_command(*words, **options)
                except ResponseError as error:
                    return Refused(str(error))

            found += carry(talk(_patient(store, client, asked)), ask)
    except CAUGHT as error:
        raise explain(error, clients.where, sent_once=True) from error
    return _each_once(found)


async def of_store_async(store: Any, asked: Asked) -> list[Finding]:  # noqa: ANN401 - an AsyncRedisStore
    """What was found on its server, or on the servers of its cluster."""
    clients = store._clients  # noqa: SLF001 - the doctor looks inside
    try:
        client = await clients.client()
        if _of_cluster(client):
            await client.initialize()
        found: list[Finding] = []
        for options in _nodes(client):

            async def ask(words: Words, options: dict[str, Any] = options) -> Any:  # noqa: ANN401 - any reply
                try:
                    return await client.execute_command(*words, **options)
                except ResponseError as error:
                    return Refused(str(error))

            found += await carry_async(talk(_patient(store, client, asked)), ask)
    except CAUGHT as error:
        raise explain(error, clients.where, sent_once=True) from error
    return _each_once(found)


def _patient(store: Any, client: Any, asked: Asked) -> Patient:  # noqa: ANN401 - of either colour
    wanted = store._replicas  # noqa: SLF001 - the doctor looks inside
    return Patient(
        prefix=store._prefix.decode(),  # noqa: SLF001 - as above
        needed=0 if wanted is None else wanted.needed,
        cluster=_of_cluster(client),
        asked=asked,
    )


def _of_cluster(client: Any) -> bool:  # noqa: ANN401 - any client of redis-py
    return callable(getattr(client, "get_primaries", None))


def _nodes(client: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any client of redis-py
    """How each server is addressed."""
    if not _of_cluster(client):
        return [{}]
    return [{"target_nodes": node} for node in client.get_primaries()]


def _each_once(findings: list[Finding]) -> list[Finding]:
    """What several nodes have in common is said once."""
    return list(dict.fromkeys(findings))
