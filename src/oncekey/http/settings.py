"""What a middleware can be told, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from oncekey.core.record import Record
from oncekey.errors import ConfigurationError
from oncekey.functions import UNSET
from oncekey.http.keys import checked_pointer
from oncekey.http.profiles import GIVEN, Profile
from oncekey.http.request import Request, Scoping
from oncekey.once import Once
from oncekey.policy import FUNCTION, Policy, PolicyFields, Terms, terms

When = Callable[[Request], bool]


class Settings(PolicyFields, total=False):
    """What every middleware can be told, the fields of `Policy` among it."""

    profile: str | Profile
    scope: str | Scoping | None
    routes: Iterable[str] | None
    methods: Iterable[str]
    when: When | None
    required: bool | None
    claim: Literal["first", "handler"]
    docs_url: str | None
    max_body: str | int
    status_path: str | None
    reconcile: Callable[[Record], Any] | None
    policy: Policy | None


def once_of(once: object) -> Once:
    """The one that was given, or one that is configured by the environment."""
    if once is None:
        return Once()
    if isinstance(once, Once):
        return once
    msg = f"once must be a Once, as in once=Once('redis://...'), but it is {once!r}"
    raise ConfigurationError(msg)


def terms_of(once: Once, profile: Profile, policy: Policy | None, fields: dict[str, Any]) -> Terms:
    """What was said here, over what the `Once` says, over what the profile says."""
    unknown = fields.keys() - PolicyFields.__annotations__.keys()
    if unknown:
        msg = f"there is no setting {', '.join(sorted(unknown))}; see oncekey.http.Settings"
        raise ConfigurationError(msg)
    said = Policy(**fields).over(policy or Policy()).over(once.policy)
    # An exception of the application is never kept: what it means for a client is a response.
    never = Policy(keep=(), on_error="release")
    return terms(never.over(said).over(profile.policy).over(FUNCTION))


def by_handler(claim: str) -> bool:
    """Whether the handler claims, and not the middleware."""
    if claim not in ("first", "handler"):
        msg = f"claim must be 'first' or 'handler', but it is {claim!r}"
        raise ConfigurationError(msg)
    return claim == "handler"


def scoping(profile: Profile, given: object, *, by_handler: bool) -> str | Scoping | None:
    """Whose a request is: a function, a JSON pointer, None, or GIVEN for what the handler says."""
    scope: Any = profile.scope if given is UNSET else given
    if scope is None or callable(scope):
        return scope  # type: ignore[no-any-return]  # a callable of the user's
    if scope == GIVEN:
        if by_handler:
            return GIVEN  # by the handler, who knows whose request it is
        msg = (
            f"the profile {profile.name!r} needs scope=: by_user, by_authorization, a function of "
            f"the request, or None if all clients may see each other's answers"
        )
        raise ConfigurationError(msg)
    if isinstance(scope, str) and scope.startswith("/"):
        return checked_pointer(scope)
    msg = (
        f"scope must be a function of the request, a JSON pointer such as '/userId', or None, "
        f"but it is {scope!r}"
    )
    raise ConfigurationError(msg)
