"""What can be said about a use of `Once`, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from oncekey.arguments import Arguments
from oncekey.core.fingerprint import of_arguments, of_value
from oncekey.core.key import Path, checked_scope, readable
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.policy import FUNCTION, Policy, PolicyFields, Terms, terms

ALL: Final = "all arguments"
"""The fingerprint covers every argument."""

UNSET: Final[Any] = object()

Selection = str | tuple[str, ...] | Callable[..., Any] | None
Fingerprint = Callable[[dict[str, Any], tuple[Any, ...], dict[str, Any]], str | None]


class Options(Struct, frozen=True, kw_only=True):
    """Everything but the key and the function. The scope is UNSET until somebody sets it."""

    policy: Policy
    scope: Any = UNSET
    fingerprint: Any = ALL
    reconcile: Callable[[Any], Any] | None = None
    label: str | None = None
    reference: str = ""
    surface: Policy = FUNCTION
    kind: Literal["function", "job"] = "function"

    def terms(self) -> Terms:
        """The policy with every blank filled in, at last by what holds on this surface."""
        return terms(self.policy.over(self.surface))

    def having(  # noqa: PLR0913 - each is an option that a user may give
        self,
        *,
        policy: Policy | None = None,
        scope: Any = UNSET,  # noqa: ANN401 - a string, None or UNSET
        fingerprint: Any = UNSET,  # noqa: ANN401 - a Selection or UNSET
        reconcile: Callable[[Any], Any] | None = None,
        label: str | None = None,
        reference: str | None = None,
        fields: PolicyFields | None = None,
    ) -> Options:
        """These options, with whatever is given in place of what was there."""
        said = Policy(**fields) if fields else Policy()
        if policy is not None:
            if not isinstance(policy, Policy):
                msg = f"policy must be a Policy, but it is {policy!r}"
                raise ConfigurationError(msg)
            said = said.over(policy)
        if reconcile is not None and not callable(reconcile):
            msg = f"reconcile must be a function of the record, but it is {reconcile!r}"
            raise ConfigurationError(msg)
        for name, text in (("label", label), ("reference", reference)):
            if text is not None and not isinstance(text, str):
                msg = f"{name} must be a string, but it is {text!r}"
                raise ConfigurationError(msg)
        return replace(
            self,
            policy=said.over(self.policy),
            scope=self.scope if scope is UNSET else checked_scope(scope),
            fingerprint=self.fingerprint if fingerprint is UNSET else fingerprint,
            reconcile=self.reconcile if reconcile is None else reconcile,
            label=self.label if label is None else readable(label),
            reference=self.reference if reference is None else readable(reference),
        )


def fingerprinter(selection: object, arguments: Arguments) -> Fingerprint:
    """How the fingerprint of a call is made, told by what the user chose."""
    if selection is None:
        return lambda _bound, _args, _kwargs: None
    if selection == ALL and arguments.receiver is None:
        return lambda bound, _args, _kwargs: of_arguments(bound)
    if selection == ALL:
        return lambda bound, _args, _kwargs: of_arguments(arguments.without_receiver(bound))
    if isinstance(selection, tuple) and all(isinstance(path, str) for path in selection):
        paths = [Path(path, arguments.names, "the fingerprint") for path in selection]
        return lambda bound, _args, _kwargs: of_arguments(
            {path.text: path.of(bound) for path in paths}
        )
    if callable(selection):
        return lambda _bound, args, kwargs: _of_chosen(selection(*args, **kwargs))
    msg = (
        'fingerprint must be a tuple of paths such as ("order.id", "order.total"), a function of '
        f"the arguments, or None, but it is {selection!r}"
    )
    raise ConfigurationError(msg)


def _of_chosen(value: object) -> str | None:
    return None if value is None else of_value(value)


def made_key(made: object) -> str:
    """What a key function returned; an empty string stands for "run, unprotected"."""
    if isinstance(made, str):
        return made
    msg = f"the key function returned {type(made).__name__}; it must return a string"
    raise InvalidKeyError(msg)
