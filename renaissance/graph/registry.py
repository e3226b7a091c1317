"""The table of layer kinds: built-in ones and a user's own enter through the same door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from renaissance.core.errors import fail
from renaissance.core.types import Shape
from renaissance.graph.layer import LayerDescriptor

if TYPE_CHECKING:
    from renaissance.graph.blueprint.tree import Layer

Expand = Callable[[Any, Shape], "Layer"]

# The walker itself understands these; they have no descriptor.
STRUCTURE = frozenset({"seq", "add2", "repeat"})


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What is known of a kind.

    Attributes:
        descriptor: Its shape rule and tensors.
        expand: ``(params, in_shape) -> Layer``: the smaller layers it stands for; None for a
            primitive.
        repeated: ``params -> params`` of the second and later copies inside a ``repeat``; None
            where all copies are alike.
        in_blueprint: Whether a blueprint may contain it. Residual markers and merged blocks exist
            only in a plan.
    """

    descriptor: LayerDescriptor
    expand: Expand | None = None
    repeated: Callable[[Any], Any] | None = None
    in_blueprint: bool = True


_KINDS: dict[str, LayerKind] = {}


def register_layer_kind(descriptor: LayerDescriptor, expand: Expand | None = None) -> None:
    """Make a new layer kind known, so that blueprints can use it and plans can describe it.

    A primitive kind also needs a lowering, registered under the same name with
    :func:`renaissance.lowering.registry.register_lowering`.

    Args:
        descriptor: The kind's name, parameter record, shape rule, tensors and operation count.
        expand: For a composite: ``(params, in_shape) -> Layer``, where ``in_shape`` is the input
            of one sample. Leave it out for a primitive.

    Raises:
        TypeError: ``descriptor`` is not a :class:`LayerDescriptor`.
        ValueError: The name is taken by a different description. Registering the same one again
            does nothing.
    """
    if not isinstance(descriptor, LayerDescriptor):
        fail(TypeError, "descriptor", descriptor, "a LayerDescriptor")
    add_kind(LayerKind(descriptor, expand))


def add_kind(kind: LayerKind) -> None:
    """Enter a kind into the table."""
    name = kind.descriptor.kind
    if not isinstance(name, str) or not name.isidentifier() or name[-1] == "_":
        fail(ValueError, "layer kind", name, "an identifier that does not end in an underscore")
    if name in STRUCTURE:
        fail(ValueError, "layer kind", name, "another name: it is part of the model language")
    if _KINDS.setdefault(name, kind) != kind:
        taken = _KINDS[name].descriptor
        raise ValueError(
            f"layer kind {name!r} is already registered as {taken!r}; expected a name of its own"
        )


def layer_kind(name: str) -> LayerKind:
    """The entry of a kind.

    Raises:
        ValueError: The kind is unknown; the message lists the known ones.
    """
    try:
        return _KINDS[name]
    except (KeyError, TypeError):
        fail(ValueError, "layer kind", name, f"one of {', '.join(sorted(_KINDS))}")


def descriptor_of(name: str) -> LayerDescriptor:
    """The descriptor of a kind; raises ``ValueError`` when it is unknown."""
    return layer_kind(name).descriptor


def registered_kinds() -> tuple[str, ...]:
    """Names of all kinds, in order of registration."""
    return tuple(_KINDS)
