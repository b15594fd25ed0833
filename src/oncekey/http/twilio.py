"""Twilio's signature: over the URL that it called, and the fields of a form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qs, parse_qsl, urlsplit

from oncekey.http.signatures import (
    Incoming,
    Proof,
    Secrets,
    SignatureError,
    base64_mac,
    exact,
    same,
)

_PORTS: Final = {"https": 443, "http": 80}
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class TwilioSignature(Secrets):
    """Twilio: `X-Twilio-Signature`, over the URL as Twilio called it and the fields of a form.

    A body that is no form is covered by the `bodySHA256` that Twilio adds to the URL. Behind a
    proxy the URL must be the public one; ports are forgiven, because Twilio may leave them out.
    """

    def _proof(self, request: Incoming) -> Proof:
        name = "x-twilio-signature"
        given = request.header(name)
        try:
            parts = urlsplit(request.url)
            urls = request.url, _with_other_port(parts)
        except ValueError:
            raise SignatureError("the URL of the request cannot be read") from None
        fields = b""
        if request.headers.get("content-type", "").lower().startswith(_FORM):
            fields = _fields(request.body)
        else:
            _check_hash(parts.query, request.body)
        return Proof(name, [given], [exact(url) + fields for url in urls])

    def _sign(self, key: bytes, signed: bytes) -> str:
        return base64_mac(key, signed, "sha1")


def _with_other_port(url: SplitResult) -> str:
    """The URL without its port, or with the usual port of its scheme where it has none."""
    if url.port is not None:
        return url._replace(netloc=url.netloc.rpartition(":")[0]).geturl()
    return url._replace(netloc=f"{url.netloc}:{_PORTS.get(url.scheme, 443)}").geturl()


def _fields(body: bytes) -> bytes:
    """Names and values of a form without anything between them, sorted; equal pairs count once."""
    pairs = parse_qsl(
        body.decode("utf-8", "surrogateescape"), keep_blank_values=True, errors="surrogateescape"
    )
    text = "".join(name + value for name, value in sorted(set(pairs)))
    return text.encode("utf-8", "surrogateescape")


def _check_hash(query: str, body: bytes) -> None:
    """The URL, which is signed, has the hash of the body. Only an empty body may go without."""
    hashes = parse_qs(query).get("bodySHA256")
    if hashes is None and not body:
        return
    if hashes is None or not same(hashes[0], hashlib.sha256(body).hexdigest()):
        raise SignatureError("the body is no form and does not fit bodySHA256 in the URL")
