"""The table of lowerings: one entry per primitive kind, and a clear word when there is none."""

from __future__ import annotations

import jax
import pytest

from renaissance.graph.descriptors.residual import MARKERS
from renaissance.graph.registry import layer_kind, registered_kinds
from renaissance.lowering import layers  # noqa: F401  (fills the table)
from renaissance.lowering.registry import (
    LayerLowering,
    has_lowering,
    lowered_kinds,
    lowering_of,
    register_lowering,
)

MERGED_ONLY_IN_PLANS = {
    f"{block}_{form}"
    for block, forms in {
        "bottleneck": ("projection", "identity"),
        "basic_block": ("projection", "identity"),
        "inv_residual": ("no_shortcut", "identity"),
    }.items()
    for form in forms
}


def test_every_primitive_kind_has_a_lowering() -> None:
    primitives = {kind for kind in registered_kinds() if layer_kind(kind).expand is None}
    expected = primitives - set(MARKERS) - MERGED_ONLY_IN_PLANS
    assert expected <= set(lowered_kinds())
    assert len(expected) >= 20


def test_an_entry_can_be_looked_up() -> None:
    assert lowering_of("conv").kind == "conv"
    assert has_lowering("bn2d")
    assert not has_lowering("add2_start")


def test_an_unknown_kind_is_named_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="kind of layer is 'attention', expected one of .*conv_dw"):
        lowering_of("attention")


def test_a_new_kind_enters_once() -> None:
    def infer(layer, tensors, x: jax.Array) -> jax.Array:  # type: ignore[no-untyped-def]
        return -x

    def train(layer, tensors, x, context):  # type: ignore[no-untyped-def]
        return -x, {}

    negate = LayerLowering("negate_for_this_test", train, infer)
    assert register_lowering(negate) is negate
    assert register_lowering(LayerLowering("negate_for_this_test", train, infer)) == negate
    assert lowering_of("negate_for_this_test") is negate
    with pytest.raises(ValueError, match="'negate_for_this_test', expected a kind without"):
        register_lowering(LayerLowering("negate_for_this_test", train, lambda *_: None))
    with pytest.raises(TypeError, match="expected a LayerLowering"):
        register_lowering("relu")  # type: ignore[arg-type]
