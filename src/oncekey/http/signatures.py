"""Check who sent a webhook. There is one class for each kind of signature that providers use.

Each takes a secret, or several while one is being replaced, and checks the raw body of a request
before anything is parsed or stored. What a signature covers differs, and so does how long an
attacker who has a copy of a request can send it again:

    class               covers                       so a copy can be sent again
    StandardSignature   id, timestamp, body          for as long as the tolerance
    StripeSignature     timestamp, body              for as long as the tolerance
    SlackSignature      timestamp, body              for as long as the tolerance
    GitHubSignature     body                         for ever, also under another delivery id
    ShopifySignature    body                         for ever, also under another event id
    TwilioSignature     URL and fields, or the body  for ever, also under another token
    GitLabToken         nothing; it is a password    for ever, with any body
"""

from __future__ import annotations

import hashlib
import hmac
import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import SplitResult, parse_qs, parse_qsl, urlsplit

from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.extras import needing
from oncekey.policy import Duration, seconds

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_MOMENT: Final = re.compile(r"[0-9]{1,12}")
_PUBLIC: Final = "whpk_"
# An id with a timestamp in it would be ambiguous: "a.1" at 2 with the body "x" has the same signed
# text as "a" at 1 with the body "2.x".
_TWO_WAYS: Final = re.compile(r"\.[0-9]+(\.|$)")


class SignatureError(OncekeyError):
    """The signature of the request is missing or wrong. Nothing was claimed, and nothing ran."""

    status_hint = 401


class Signature(Protocol):
    """The interface of a signature check."""

    def verify(self, headers: Mapping[str, str], body: bytes, url: str, now: float) -> None:
        """Raise SignatureError unless the request is genuine.

        The names of `headers` are in lower case, `body` is the body as it was received, `url` is
        the URL that the provider called, and `now` is Unix time in seconds.
        """
        ...


def exact(text: str) -> bytes:
    """Encode any text, surrogates included. Different texts give different bytes."""
    return text.encode("utf-8", "surrogatepass")


def same(given: str, made: str) -> bool:
    """Return whether the texts are equal, compared in constant time."""
    return hmac.compare_digest(exact(given), made.encode())


def base64_mac(key: bytes, signed: bytes, digest: str) -> str:
    """Return the MAC of the text in base64."""
    return b64encode(hmac.digest(key, signed, digest)).decode()


class Incoming(NamedTuple):
    """A request that is to be checked."""

    headers: Mapping[str, str]
    body: bytes
    url: str
    now: float

    def header(self, name: str) -> str:
        """Return the header. Raise SignatureError if it is missing."""
        value = self.headers.get(name)
        if not value:
            raise SignatureError(f"the header {name} is missing")
        return value


class Proof(NamedTuple):
    """The signatures in a header, and the texts: one signature must fit one of the texts."""

    header: str
    given: list[str]
    signed: list[bytes]


@dataclass(frozen=True)
class Secrets(ABC):
    """One secret or several, any of which may have signed. They are not part of the repr."""

    secrets: str | Sequence[str] = field(repr=False)
    _keys: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the secrets. Raise ConfigurationError, without their text, if one is not valid."""
        several = isinstance(self.secrets, Iterable) and not isinstance(self.secrets, str)
        given = tuple(self.secrets) if several else (self.secrets,)
        if not all(isinstance(one, str) for one in given):
            msg = f"{type(self).__name__} takes a secret or a list of them, each of them a string"
            raise ConfigurationError(msg)
        if not given or not all(str(one).strip() for one in given):
            raise ConfigurationError(f"{type(self).__name__} needs a secret that is not empty")
        keys = tuple(self._key(one) for one in given if isinstance(one, str))
        object.__setattr__(self, "secrets", given)
        object.__setattr__(self, "_keys", keys)

    def verify(self, headers: Mapping[str, str], body: bytes, url: str, now: float) -> None:
        """Raise SignatureError unless one of the secrets signed the request."""
        proof = self._proof(Incoming(headers, body, url, now))
        for key, given, signed in product(self._keys, proof.given, proof.signed):
            if self._fits(key, given, signed):
                return
        raise SignatureError(f"{proof.header} does not fit this request")

    @abstractmethod
    def _proof(self, request: Incoming) -> Proof: ...

    def _key(self, secret: str) -> bytes:
        return secret.encode()

    def _fits(self, key: bytes, given: str, signed: bytes) -> bool:
        return same(given, self._sign(key, signed))

    def _sign(self, key: bytes, signed: bytes) -> str:
        return hmac.digest(key, signed, "sha256").hex()


@dataclass(frozen=True)
class _Dated(Secrets):
    """A signature that covers a timestamp too, which must be within the tolerance."""

    tolerance: Duration = 300

    def __post_init__(self) -> None:
        """Check that the tolerance is a duration."""
        super().__post_init__()
        seconds(self.tolerance, "tolerance")

    def _check_moment(self, header: str, moment: str, now: float) -> None:
        if not _MOMENT.fullmatch(moment):
            raise SignatureError(f"the timestamp in {header} is no number of seconds")
        tolerance = seconds(self.tolerance, "tolerance")
        if not abs(now - int(moment)) <= tolerance:
            raise SignatureError(f"the timestamp in {header} is more than {tolerance:g} s from now")


class PublicKey(bytes):
    """A public key of ed25519. It must never be used as a secret, since everybody may know it."""

    __slots__ = ()

    @classmethod
    def read(cls, text: str) -> PublicKey:
        """Return the key in a text that begins with `whpk_`. Raise ConfigurationError if none."""
        try:
            key = cls(b64decode(text.removeprefix(_PUBLIC), validate=True))
            _ed25519().from_public_bytes(key)
        except ValueError:
            msg = "StandardSignature needs a public key of 32 bytes in base64 after whpk_"
            raise ConfigurationError(msg) from None
        return key

    def verifies(self, signature: str, signed: bytes) -> bool:
        """Return whether the owner of the key has signed the text."""
        from cryptography.exceptions import InvalidSignature

        try:
            raw = b64decode(signature, validate=True)
            _ed25519().from_public_bytes(self).verify(raw, signed)
        except (ValueError, InvalidSignature):
            return False
        return True


def _ed25519() -> type[Ed25519PublicKey]:
    with needing("webhooks", "a public key"):
        from cryptography.hazmat.primitives.asymmetric import ed25519
    return ed25519.Ed25519PublicKey


@dataclass(frozen=True)
class StandardSignature(_Dated):
    """Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.

    A secret, with or without `whsec_` before it, checks signatures of the version `v1`. A public
    key, which begins with `whpk_`, checks those of the version `v1a` (ed25519), and needs
    `oncekey[webhooks]`. `StandardSignature(secret, prefix="svix-")` reads the older names of Svix.
    Only the names with the prefix are read, so take the key of the operation from that id and from
    no other.
    """

    prefix: str = "webhook-"

    def __post_init__(self) -> None:
        """Check that the prefix can begin the name of a header in lower case."""
        super().__post_init__()
        if not isinstance(self.prefix, str) or not re.fullmatch(r"[a-z0-9-]+", self.prefix):
            msg = f'prefix must be that of headers in lower case, as "svix-", not {self.prefix!r}'
            raise ConfigurationError(msg)

    def sign(self, identity: str, body: bytes, now: float) -> dict[str, str]:
        """Return the headers of a webhook that is sent now, signed with each of the secrets.

        Raise ConfigurationError for a public key, which signs nothing, and for an id that no header
        can carry, or that could be mistaken for a timestamp.
        """
        if any(isinstance(key, PublicKey) for key in self._keys):
            raise ConfigurationError("a public key signs nothing; give the secret")
        if not identity or not identity.isascii() or _TWO_WAYS.search(identity):
            msg = f"the id {identity!r} of a webhook must be ASCII, without a part as in '.1'"
            raise ConfigurationError(msg)
        moment = str(int(now))
        signed = exact(f"{identity}.{moment}.") + body
        names = self._names()
        signatures = " ".join(f"v1,{self._sign(key, signed)}" for key in self._keys)
        return dict(zip(names, (identity, moment, signatures), strict=True))

    def _names(self) -> list[str]:
        return [f"{self.prefix}{name}" for name in ("id", "timestamp", "signature")]

    def _proof(self, request: Incoming) -> Proof:
        names = self._names()
        identity, moment, signatures = (request.header(name) for name in names)
        if _TWO_WAYS.search(identity):
            raise SignatureError(f"the {names[0]} could be mistaken for a timestamp")
        self._check_moment(names[1], moment, request.now)
        signed = exact(f"{identity}.{moment}.") + request.body
        return Proof(names[2], signatures.split(" "), [signed])

    def _fits(self, key: bytes, given: str, signed: bytes) -> bool:
        version, _, signature = given.partition(",")
        if isinstance(key, PublicKey):
            return version == "v1a" and key.verifies(signature, signed)
        return version == "v1" and same(signature, self._sign(key, signed))

    def _key(self, secret: str) -> bytes:
        if secret.startswith(_PUBLIC):
            return PublicKey.read(secret)
        try:
            key = b64decode(secret.removeprefix("whsec_"), validate=True)
        except ValueError:
            key = b""
        if not key:
            msg = "StandardSignature needs a secret in base64, with or without whsec_ before it"
            raise ConfigurationError(msg)
        return key

    def _sign(self, key: bytes, signed: bytes) -> str:
        return base64_mac(key, signed, "sha256")


@dataclass(frozen=True)
class StripeSignature(_Dated):
    """Stripe: `Stripe-Signature: t=...,v1=...`."""

    def _proof(self, request: Incoming) -> Proof:
        name = "stripe-signature"
        pairs = [one.partition("=") for one in request.header(name).split(",")]
        moments = [value for key, _, value in pairs if key == "t"]
        if len(moments) != 1:
            raise SignatureError(f"{name} must have one timestamp, but it has {len(moments)}")
        self._check_moment(name, moments[0], request.now)
        given = [value for key, _, value in pairs if key == "v1"]
        return Proof(name, given, [f"{moments[0]}.".encode() + request.body])


@dataclass(frozen=True)
class SlackSignature(_Dated):
    """Slack: `X-Slack-Signature: v0=...` and `X-Slack-Request-Timestamp`."""

    def _proof(self, request: Incoming) -> Proof:
        given = request.header("x-slack-signature")
        moment = request.header("x-slack-request-timestamp")
        self._check_moment("x-slack-request-timestamp", moment, request.now)
        return Proof("x-slack-signature", [given], [f"v0:{moment}:".encode() + request.body])

    def _sign(self, key: bytes, signed: bytes) -> str:
        return f"v0={super()._sign(key, signed)}"


@dataclass(frozen=True)
class GitHubSignature(Secrets):
    """GitHub: `X-Hub-Signature-256: sha256=...`. The weaker `X-Hub-Signature` is not read."""

    def _proof(self, request: Incoming) -> Proof:
        name = "x-hub-signature-256"
        return Proof(name, [request.header(name)], [request.body])

    def _sign(self, key: bytes, signed: bytes) -> str:
        return f"sha256={super()._sign(key, signed)}"


@dataclass(frozen=True)
class ShopifySignature(Secrets):
    """Shopify: `X-Shopify-Hmac-Sha256`."""

    def _proof(self, request: Incoming) -> Proof:
        name = "x-shopify-hmac-sha256"
        return Proof(name, [request.header(name)], [request.body])

    def _sign(self, key: bytes, signed: bytes) -> str:
        return base64_mac(key, signed, "sha256")


@dataclass(frozen=True)
class GitLabToken(Secrets):
    """GitLab's secret token: `X-Gitlab-Token`, a password that is sent with each request.

    For a signing token of GitLab, which starts with `whsec_`, use `StandardSignature`. It proves
    more than this one.
    """

    def _proof(self, request: Incoming) -> Proof:
        return Proof("x-gitlab-token", [request.header("x-gitlab-token")], [b""])

    def _key(self, secret: str) -> bytes:
        if not secret.isascii():
            raise ConfigurationError("GitLabToken needs a secret of ASCII, as headers carry it")
        return secret.encode()

    def _sign(self, key: bytes, signed: bytes) -> str:  # noqa: ARG002 - nothing is signed
        return key.decode()


# Twilio's signature, over the URL that it called and the fields of a form.


_PORTS: Final = {"https": 443, "http": 80}
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class TwilioSignature(Secrets):
    """Twilio: `X-Twilio-Signature`, over the URL as Twilio called it and the fields of a form.

    A body that is no form is covered by the `bodySHA256` that Twilio adds to the URL. Behind a
    proxy the URL must be the public one. The URL is tried with and without its port, since Twilio
    may leave the port out.
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
    """Return the URL without its port, or with the default port if it has none."""
    if url.port is not None:
        return url._replace(netloc=url.netloc.rpartition(":")[0]).geturl()
    return url._replace(netloc=f"{url.netloc}:{_PORTS.get(url.scheme, 443)}").geturl()


def _fields(body: bytes) -> bytes:
    """Return the names and values of a form, sorted and joined. Equal pairs count once."""
    pairs = parse_qsl(
        body.decode("utf-8", "surrogateescape"), keep_blank_values=True, errors="surrogateescape"
    )
    text = "".join(name + value for name, value in sorted(set(pairs)))
    return text.encode("utf-8", "surrogateescape")


def _check_hash(query: str, body: bytes) -> None:
    """Check the hash of the body in the URL, which is signed. Raise SignatureError if it is wrong.

    Only an empty body may come without a hash.
    """
    hashes = parse_qs(query).get("bodySHA256")
    if hashes is None and not body:
        return
    if hashes is None or not same(hashes[0], hashlib.sha256(body).hexdigest()):
        raise SignatureError("the body is no form and does not fit bodySHA256 in the URL")
