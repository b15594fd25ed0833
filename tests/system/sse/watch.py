"""Watch a stream with a client of Python until its last event, and print the offsets that came.

These clients do not come back by themselves: the caller does, with the id that they tell.
"""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, suppress

import httpx


def of_httpx_sse(url: str, last_id: str) -> Generator[tuple[str, str], None, None]:
    from httpx_sse import connect_sse  # type: ignore[import-not-found]

    headers = {"Last-Event-ID": last_id} if last_id else {}
    with (
        httpx.Client(timeout=600) as client,
        connect_sse(client, "GET", url, headers=headers) as s,
    ):
        for event in s.iter_sse():
            yield event.data, event.id


def of_sseclient(url: str, last_id: str) -> Generator[tuple[str, str], None, None]:
    from sseclient import SSEClient  # type: ignore[import-not-found]

    headers = {"Last-Event-ID": last_id} if last_id else {}
    with httpx.Client(timeout=600) as client, client.stream("GET", url, headers=headers) as found:
        for event in SSEClient(found.iter_bytes()).events():
            yield event.data, event.id or ""


def of_curl(url: str, last_id: str) -> Generator[tuple[str, str], None, None]:
    words = ["curl", "-sN", *(("-H", f"Last-Event-ID: {last_id}") if last_id else ()), url]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, errors="replace")
    assert process.stdout is not None
    fields: dict[str, str] = {}
    try:
        for line in process.stdout:
            if line == "\n":
                if "data" in fields:
                    yield fields["data"], fields["id"]
                fields = {}
            elif line.endswith("\n"):
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value
    finally:
        process.kill()
        process.wait()


CLIENTS = {"httpx-sse": of_httpx_sse, "sseclient-py": of_sseclient, "curl": of_curl}


def main(client: str, url: str, last: int) -> None:
    seen: list[int] = []
    last_id = ""
    while not seen or seen[-1] != last:
        with (
            suppress(httpx.HTTPError, UnicodeDecodeError),
            closing(CLIENTS[client](url, last_id)) as found,
        ):
            for data, name in found:
                if not data:
                    continue
                offset = json.loads(data)["offset"]
                last_id = name or last_id
                seen.append(offset)
                if seen[-1] == last:
                    break
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
