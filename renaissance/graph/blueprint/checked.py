"""What every factory shares: a wrong call fails with the call that would be right."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from renaissance.core.errors import fail
from renaissance.graph.blueprint.tree import Layer

P = ParamSpec("P")
R = TypeVar("R")


def factory(function: Callable[P, R]) -> Callable[P, R]:
    """Let unknown, missing or surplus arguments raise a ``TypeError`` that shows the signature."""

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            _check_call(function, args, kwargs)
            raise  # the call is right, an argument is not

    return checked


def _check_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        call = f"{function.__name__}({', '.join(map(str, plain))})"
        raise TypeError(f"{function.__name__}: {error}; expected {call}") from None


def check_layer(where: str, value: Any) -> Layer:
    """Return ``value`` if it is a layer."""
    if isinstance(value, Layer):
        return value
    if isinstance(value, (list, tuple)):
        fail(TypeError, where, value, "a Layer (unpack a list with *: seq(*layers))")
    if isinstance(getattr(value, "layer", None), Layer):
        fail(TypeError, where, value, "a Layer (take the tree of a BluePrint: blueprint.layer)")
    if callable(value):
        fail(TypeError, where, value, "a Layer (call the factory: relu(), not relu)")
    fail(TypeError, where, value, "a Layer")
