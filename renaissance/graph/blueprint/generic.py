"""The generic factory, for kinds that have none of their own."""

from __future__ import annotations

from typing import Any

from renaissance.core.errors import fail
from renaissance.graph.blueprint.checked import factory
from renaissance.graph.blueprint.tree import Layer
from renaissance.graph.registry import layer_kind


@factory
def layer(kind: str, params: Any) -> Layer:
    """A layer of any registered kind: the factory of a user's own layers.

    Args:
        kind: A name given to :func:`renaissance.graph.registry.register_layer_kind`.
        params: A frozen record of the type that the kind's descriptor names.

    Raises:
        ValueError: The kind is unknown, or exists only in plans (residual markers, merged blocks).
        TypeError: The record is of another type, or not hashable.
    """
    entry = layer_kind(kind)
    if not entry.in_blueprint:
        fail(ValueError, "layer kind", kind, "a kind a blueprint may hold; this one is a plan's")
    expected = entry.descriptor.params
    if type(params) is not expected:
        fail(TypeError, f"params of layer kind {kind!r}", params, f"a {expected.__name__}")
    try:
        hash(params)
    except TypeError:
        fail(TypeError, f"params of layer kind {kind!r}", params, "a frozen, hashable record")
    return Layer(kind, params)
