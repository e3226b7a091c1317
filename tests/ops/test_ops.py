"""The public layer functions: what is there, documented, and usable under every transform."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import pytest

from renaissance import ops
from renaissance.testing import assert_within, golden_normal

FUNCTIONS = sorted(name for name in ops.__all__ if inspect.isfunction(getattr(ops, name)))


def test_everything_named_is_there() -> None:
    assert len(FUNCTIONS) >= 35
    assert all(hasattr(ops, name) for name in ops.__all__)
    assert ops.__all__ == sorted(ops.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_documents_arguments_result_and_errors(name: str) -> None:
    function = getattr(ops, name)
    text = inspect.getdoc(function) or ""
    sections = [part for part in ("Args:", "Returns:", "Raises:") if part not in text]
    assert not sections, f"{name} lacks {sections}"
    for parameter in inspect.signature(function).parameters:
        assert f"\n    {parameter}: " in text, f"{name} does not say what {parameter} is"


X = golden_normal("x", (3, 2, 6, 5, 4)).astype("float32")
LAYERS = {
    "conv": lambda x: ops.conv(x, jnp.ones((3, 3, 3, 4), x.dtype), pad=1),
    "depthwise_conv": lambda x: ops.depthwise_conv(x, jnp.ones((4, 3, 3, 1), x.dtype), pad=1),
    "batch_norm_train": lambda x: ops.batch_norm_train(
        x, jnp.ones(4), jnp.zeros(4), jnp.zeros(4), jnp.ones(4)
    )[0],
    "max_pool": lambda x: ops.max_pool(x, kernel=3, stride=2, pad=1),
    "average_pool": lambda x: ops.average_pool(x, kernel=2, stride=2),
    "gap_fc": lambda x: ops.gap_fc(x, jnp.ones((2, 4), x.dtype)),
    "silu": ops.silu,
    "dropout": lambda x: ops.dropout(x, 0.5, seed=1, step=2),
    "softmax_cross_entropy": lambda x: ops.softmax_cross_entropy(
        ops.flatten(x), jnp.asarray([3, 5])
    ),
}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_a_layer_can_be_mapped_differentiated_and_compiled_at_once(name: str) -> None:
    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(LAYERS[name](x) ** 2)

    gradient = jax.jit(jax.grad(total))
    each = jnp.stack([gradient(x) for x in X])
    mapped = jax.jit(jax.vmap(jax.grad(total)))(X)
    assert jnp.linalg.norm(each) > 0
    assert_within(mapped, each, 1e-5)


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_half_precision_in_half_precision_out(name: str) -> None:
    y = jax.eval_shape(LAYERS[name], jax.ShapeDtypeStruct(X.shape[1:], jnp.float16))
    assert y.dtype == (jnp.float32 if name == "softmax_cross_entropy" else jnp.float16)
