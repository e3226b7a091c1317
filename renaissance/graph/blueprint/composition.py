"""Putting layers together: in sequence, side by side, again and again."""

from __future__ import annotations

from renaissance.core.errors import check_int
from renaissance.graph.blueprint.checked import check_layer, factory
from renaissance.graph.blueprint.tree import Layer


@factory
def seq(*layers: Layer) -> Layer:
    """One layer after another.

    Raises:
        ValueError: There is no layer; use ``identity()`` for nothing.
        TypeError: An argument is not a layer.
    """
    if not layers:
        raise ValueError("seq() is empty, expected at least one layer; identity() does nothing")
    children = tuple(check_layer(f"seq argument {i + 1}", x) for i, x in enumerate(layers))
    return Layer("seq", None, children)


@factory
def add2(shortcut: Layer, main: Layer) -> Layer:
    """Two paths from the same input, added. Both must give the same shape.

    Args:
        shortcut: Usually ``identity()`` or a projecting 1x1 convolution.
        main: The path with the work.
    """
    children = (check_layer("add2 shortcut", shortcut), check_layer("add2 main", main))
    return Layer("add2", None, children)


@factory
def repeat(body: Layer, times: int) -> Layer:
    """``times`` copies of ``body`` in sequence, each with weights of its own.

    When the body itself is a ``block`` or ``mbconv``, only the first copy downsamples and projects;
    the others keep its output shape.
    """
    return Layer("repeat", check_int("repeat times", times, 1), (check_layer("repeat body", body),))
