"""Document in OpenAPI what a middleware does: the key, its lifetime, and what clients may be told.

    document = describe(app.openapi(), middleware)

Everything is read from the middleware's profile and settings, so that the document cannot promise
anything else. FastAPI does it by itself after `oncekey.http.fastapi.install`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from oncekey.errors import ConfigurationError
from oncekey.http.profiles import Situation
from oncekey.http.response import problem_type
from oncekey.http.rules import Rules

__all__ = ["describe"]

Document = dict[str, Any]
Covers = Callable[[str, str], bool]

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_PROBLEM: Final = "application/problem+json"
_LATER: Final = frozenset({"in-progress", "store-unavailable"})
_SECOND: Final = 1_000_000  # terms are in microseconds
_UNITS: Final = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))

# One key as a header carries it, bare or as a Structured Field string.
_BARE: Final = r"[!#-+\--~]([ -+\--~]{0,253}[!-+\--~])?"
_QUOTED: Final = r'"([ !#-\[\]-~]|\\["\\]){1,255}"'


def describe(document: Mapping[str, Any], middleware: Any, *, covers: Covers | None = None) -> Any:
    """Return a copy of an OpenAPI 3 document that says what the middleware does.

    Each operation that the middleware covers gets the parameter of the key, the replies that
    clients may get instead of the application's, and the headers of a replay. What the document
    says already stays. `covers` is a function of method and path, instead of the routes of the
    middleware. Raise ConfigurationError if the document is none of OpenAPI 3.
    """
    rules = getattr(middleware, "rules", middleware)
    if not isinstance(rules, Rules):
        msg = f"describe takes the middleware, not {type(middleware).__name__}"
        raise ConfigurationError(msg)
    if not str(document.get("openapi", "")).startswith("3."):
        msg = "describe takes a document of OpenAPI 3, with its version in the member openapi"
        raise ConfigurationError(msg)
    made: Document = copy.deepcopy(dict(document))
    description = _Description(made, rules)
    covered = covers or rules.covers
    paths = {}
    for path, item in made.get("paths", {}).items():
        ours = [one for one in _METHODS if one in item and covered(one.upper(), path)]
        # Not in place: operations of a document may be one and the same object.
        paths[path] = {**item, **{method: description.of(item[method]) for method in ours}}
    made["paths"] = paths
    return made


class _Description:
    """What one middleware adds to operations, and the components that they share."""

    def __init__(self, document: Document, rules: Rules) -> None:
        self._document = document
        self._rules = rules
        self._profile = rules.profile

    def of(self, operation: Document) -> Document:
        """Return the operation with a description, unless it has one already."""
        if "x-idempotency" in operation:
            return operation
        operation = {**operation, "x-idempotency": self._policy()}
        self._add_key(operation)
        responses = {str(name): one for name, one in operation.get("responses", {}).items()}
        for status, response in responses.items():
            if self._replays(status):
                responses[status] = self._replayed(response)
        for status, situations in self._refusals().items():
            there = self._resolved(responses.get(status, {}))
            responses[status] = self._refused(there, situations)
        operation["responses"] = responses
        return operation

    def _policy(self) -> Document:
        profile = self._profile
        policy: Document = {
            "profile": profile.name,
            "key": list(profile.keys),
            "required": self._rules.required,
            "lifetime": self._rules.terms.ttl // _SECOND,
            "kept": list(profile.kept),
            "replay": profile.replay,
        }
        if profile.not_kept:
            policy["freed"] = sorted(profile.not_kept)
        return policy

    # The key

    def _add_key(self, operation: Document) -> None:
        headers = [name for name in self._profile.keys if not name.startswith("/")]
        required = self._rules.required and len(self._profile.keys) == 1
        parameters = operation.get("parameters", [])
        said = {str(self._resolved(one).get("name", "")).lower() for one in parameters}
        for name in headers:
            if name.lower() not in said:
                parameter = self._parameter(name, required=required)
                parameters = [*parameters, self._shared("parameters", _title(name), parameter)]
        if parameters:
            operation["parameters"] = parameters
        pointers = [name for name in self._profile.keys if name.startswith("/")]
        if pointers:
            names = " or ".join(f"`{name.lstrip('/')}`" for name in pointers)
            self._append(operation, f"The member {names} of the body is {self._meaning()}")

    def _parameter(self, name: str, *, required: bool) -> Document:
        return {
            "name": name,
            "in": "header",
            "required": required,
            "description": self._meaning().capitalize(),
            "schema": {"type": "string", "pattern": f"^({_BARE}|{_QUOTED})$"},
            "example": "8e03978e-40d5-43e8-bc93-6894a57f9324",
        }

    def _meaning(self) -> str:
        """Return what the key is, and for how long it counts."""
        lifetime = _duration(self._rules.terms.ttl / _SECOND)
        sameness = "" if self._profile.fingerprint is None else ", which must be the same request,"
        shortest = self._profile.any_text
        text = (
            "1 to 255 printable ASCII characters"
            if shortest is None
            else f"{shortest} or more characters"
        )
        return (
            f"the idempotency key: a text of {text}, such as a UUID, "
            "made by the client for one operation and repeated with each try of it. A second "
            f"request with the same key{sameness} does not run again; it gets the first "
            f"response, which is kept for {lifetime}."
        )

    @staticmethod
    def _append(operation: Document, text: str) -> None:
        before = operation.get("description", "")
        operation["description"] = f"{before}\n\n{text}" if before else text

    # The responses

    def _replays(self, status: str) -> bool:
        """Return whether a response of this status, or of a range such as 2XX, may be a replay."""
        if status.isdigit():
            return self._profile.keeps(int(status))
        return status.lower() in self._profile.kept

    def _replayed(self, response: Document) -> Document:
        made = dict(self._resolved(response))
        added = {"Idempotent-Replayed": self._replay_header()}
        if self._profile.echo:
            added["Idempotency-Key"] = self._header(
                "IdempotencyKey", "The idempotency key of the request.", {"type": "string"}
            )
        made["headers"] = {**added, **made.get("headers", {})}
        return made

    def _replay_header(self) -> Document:
        return self._header(
            "IdempotentReplayed",
            "There, and `true`, if this is the response to an earlier request with the same key.",
            {"type": "string", "enum": ["true"]},
        )

    def _header(self, name: str, description: str, schema: Document) -> Document:
        return self._shared("headers", name, {"description": description, "schema": schema})

    def _refusals(self) -> dict[str, list[Situation]]:
        """Return the situations that a client may be told of, by status."""
        found: dict[str, list[Situation]] = {}
        for situation in self._situations():
            found.setdefault(str(self._profile.says(situation).status), []).append(situation)
        return found

    def _situations(self) -> Iterator[Situation]:
        profile, rules = self._profile, self._rules
        if rules.required:
            yield "missing-key"
        yield "invalid-key"
        if profile.signature is not None:
            yield "invalid-signature"
        if rules.required and rules.may_be_unowned:
            yield "unprotected"
        yield "too-large"
        yield "in-progress"
        if profile.fingerprint is not None:
            yield "key-reused"
        if profile.replay == "status":
            yield "already-processed"
        else:
            yield "response-not-replayable"
        yield "outcome-unknown"
        if not rules.terms.fail_open:
            yield "store-unavailable"
        if "5xx" in profile.kept:
            yield "server-error"

    def _refused(self, response: Document, situations: list[Situation]) -> Document:
        """Return the response with the replies for these situations added."""
        made = dict(response)
        content = dict(made.get("content", {}))
        titles = []
        problems: list[Situation] = []
        for situation in situations:
            words = self._profile.says(situation)
            titles.append(words.title or situation.replace("-", " ").capitalize())
            if words.body is None:
                problems.append(situation)
            else:
                _offer(content, "application/json", _schema(words.body))
        if problems:
            _offer(content, _PROBLEM, self._problem(problems))
        made["content"] = content
        said = made.get("description", "").rstrip(".")
        made["description"] = "; ".join([*([said] if said else []), *titles]) + "."
        headers = {}
        if _LATER & set(situations):
            headers["Retry-After"] = self._header(
                "RetryAfter",
                "The seconds to wait before the same request is sent again.",
                {"type": "integer", "minimum": 1},
            )
        if "already-processed" in situations:
            headers["Idempotent-Replayed"] = self._replay_header()
        if headers:
            made["headers"] = {**headers, **made.get("headers", {})}
        return made

    def _problem(self, situations: list[Situation]) -> Document:
        """Return the schema of the problems of one status."""
        docs_url = self._rules.answers.docs_url
        words = self._profile.says(situations[0])
        properties: Document = {
            "type": {
                "type": "string",
                "enum": [problem_type(one, docs_url) for one in situations],
            },
            "title": {"type": "string"},
            "status": {"type": "integer", "enum": [words.status]},
            "detail": {"type": "string"},
            "instance": {"type": "string", "description": "The record, by its hash in the logs."},
        }
        if _LATER & set(situations):
            properties["retry_after"] = {"type": "integer", "minimum": 1}
        if "in-progress" in situations and self._rules.status is not None:
            properties["status_url"] = {"type": "string"}
        schema = {
            "type": "object",
            "description": "A problem of RFC 9457 with the idempotency key of the request.",
            "properties": properties,
            "required": ["type", "title", "status", "detail"],
        }
        return self._shared("schemas", f"IdempotencyProblem{words.status}", schema)

    # The components

    def _shared(self, kind: str, name: str, component: Document) -> Document:
        """Return a reference to the component, which is added unless it is there.

        Two middlewares may have different components of one name: the second gets a number.
        """
        there = self._document.setdefault("components", {}).setdefault(kind, {})
        free = name
        number = 1
        while there.get(free, component) != component:
            number += 1
            free = f"{name}{number}"
        there[free] = component
        return {"$ref": f"#/components/{kind}/{free}"}

    def _resolved(self, value: Document) -> Document:
        """Return what a reference within the document stands for, or the value itself."""
        reference = str(value.get("$ref", ""))
        if not reference.startswith("#/"):
            return value
        found: Any = self._document
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~"), {})
        return dict(found)


def _offer(content: Document, media_type: str, schema: Document) -> None:
    """Add a schema to those of a media type."""
    there = content.get(media_type, {}).get("schema")
    if there is None:
        content[media_type] = {"schema": schema}
        return
    known = there["anyOf"] if set(there) == {"anyOf"} else [there]
    if schema not in known:
        content[media_type] = {**content[media_type], "schema": {"anyOf": [*known, schema]}}


def _schema(value: Any) -> Document:
    """Return the schema of a reply, or a part of it, that a profile words itself."""
    if isinstance(value, Mapping):
        return {
            "type": "object",
            "properties": {name: _schema(one) for name, one in value.items()},
            "required": list(value),
        }
    if value == "{retry_after}":
        return {"type": "integer", "minimum": 1}
    if isinstance(value, bool):
        return {"type": "boolean", "enum": [value]}
    if isinstance(value, str):
        return {"type": "string"} if "{" in value else {"type": "string", "enum": [value]}
    return {"enum": [value]}


def _title(header: str) -> str:
    """Return the name of a component for a header: IdempotencyKey for Idempotency-Key."""
    return "".join(part.capitalize() for part in header.split("-"))


def _duration(seconds: float) -> str:
    for unit, name in _UNITS:
        if seconds > unit and seconds % unit == 0:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:g} seconds"
