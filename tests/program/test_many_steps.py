"""Many steps in one call: as a chain or as one launch, on stacks or on rows of a data set."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import renaissance as rn
from renaissance.core.errors import PlanError
from renaissance.core.types import Bank
from renaissance.lowering.calls.in_place import Location
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.rewrites.persistent import persistent_call, reasons_against
from renaissance.runtime import library
from renaissance.runtime.executables import alias_map
from tests.program.support import bits

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

SHAPE, CLASSES, ROWS, STEPS = (4, 6, 1), 7, 13, 4
VALUES = ((np.arange(256) / 255 - 0.2) / 0.4).astype(np.float32)
ON_GPU = jax.default_backend() == "gpu"
OPTIMIZERS = [rn.AdamW(weight_decay=0.01), rn.SGD(momentum=0.9, nesterov=True)]


def net(*hidden: rn.Layer) -> rn.Layer:
    layers = hidden or (rn.fc(40), rn.relu(), rn.fc(24), rn.relu())
    return rn.seq(rn.flatten(), *layers, rn.fc(CLASSES))


def program(loop: str = "chain", lowering: str = "fused", **options: Any) -> rn.Program:
    defaults = {"optimizer": rn.AdamW(), "scheduler": rn.Constant(0.01), "amp": True}
    given = {**defaults, **options}
    layers = given.pop("net", None) or net()
    return rn.compile(layers, SHAPE, ROWS, lowering=lowering, loop=loop, **given)


def data_set(rows: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes, labels, and which rows each batch takes."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (rows, *SHAPE), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, rows).astype(np.int32)
    return images, labels, rng.integers(0, rows, (STEPS, ROWS)).astype(np.int32)


def stack(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    images, labels, indices = data_set()
    return VALUES[images][indices].astype(dtype), labels[indices]


@pytest.mark.skipif(ON_GPU, reason="on a device the two sum in different orders")
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["adamw", "nesterov"])
def test_one_call_leaves_the_bits_of_the_chain(optimizer: Any) -> None:
    options = {"optimizer": optimizer, "loss": rn.CrossEntropy(label_smoothing=0.1)}
    options |= {"grad_clip": rn.ClipByValue(0.05), "loss_scale": rn.LossScale(2.0**24)}
    images, labels = stack()
    images[2, 3] = np.inf  # skips this step; so does the scale until it has fallen
    states, metrics = [], []
    for loop in ("chain", "persistent"):
        compiled = program(loop, **options)
        state, measured = compiled.train_steps(compiled.init(3), (images, labels))
        states.append(bits(state))
        metrics.append(np.asarray(measured.array))
    assert states[0] == states[1]
    np.testing.assert_array_equal(metrics[0], metrics[1])


@pytest.mark.parametrize("lowering", ["xla", "fused"])
def test_rows_of_a_data_set_train_like_their_stack(lowering: str) -> None:
    compiled = program(lowering=lowering)
    images, labels, indices = data_set()
    wanted, expected = compiled.train_steps(compiled.init(3), stack(np.float16))
    bytes_too = ((VALUES.astype(np.float16)[images], None), (images, VALUES.astype(np.float16)))
    for given, values in bytes_too:
        rows = (given, labels)
        state, metrics = compiled.train_steps(compiled.init(3), rows, indices, values=values)
        assert compiled.sha256(state) == compiled.sha256(wanted)
        np.testing.assert_array_equal(metrics["loss"], expected["loss"])


@pytest.mark.skipif(ON_GPU, reason="on a device the two sum in different orders")
def test_one_call_on_rows_leaves_the_bits_of_the_chain() -> None:
    images, labels, indices = data_set()
    chain, one = program("chain"), program("persistent")
    wanted, _ = chain.train_steps(chain.init(3), stack())
    for values in (VALUES, VALUES.astype(np.float16)):
        state, _ = one.train_steps(one.init(3), (images, labels), indices, values=values)
        assert bits(state) == bits(wanted)


def test_the_one_call_keeps_every_bank_in_place_and_asks_for_its_workspace() -> None:
    if ON_GPU:
        pytest.skip("networks of this size are not among the device's tests")
    compiled = program("persistent")
    images, labels = stack()
    compiled.train_steps(compiled.init(0), (images, labels))
    executable = compiled.backend.executable("train_steps", images.shape)
    text = executable.compiled.as_text()
    assert text.count('custom_call_target="rn_mlp_train_steps"') == 1 and "rn_fc" not in text
    granted = alias_map(executable.compiled)
    assert all(granted[i] == i for i in range(len(executable.state_paths)))


def test_every_tensor_of_the_call_lies_in_the_persistent_bank_once() -> None:
    compiled = program()
    scene = Scene(compiled.memory, compiled.backend.recipe)
    calls = train_pass(compiled.graph, scene).calls
    call = persistent_call(scene, calls, STEPS, "uint8", indexed=True)
    places = [o for o in call.operands if isinstance(o, Location)][1:]
    assert {place.bank for place in places} == {Bank.PERSISTENT}
    spans = sorted((place.offset, place.offset + place.nbytes) for place in places)
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False)), "none overlaps"
    assert len(places) == 10 + 2 * 4 + 3 * 7
    (launch,) = launches_of(call)
    assert (launch.grid, launch.threads, launch.cluster) == ((112, 1, 1), 384, 16)
    assert dict(launch.kernel.constants)["RN_WIDTHS"] == "24,40,24,7"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"net": net(rn.fc(8), rn.relu(), rn.dropout(0.5), rn.fc(8))}, "rn_dropout_forward"),
        ({"optimizer": rn.LARS()}, "rn_lars"),
        ({"grad_clip": rn.ClipByGlobalNorm(1.0)}, "rn_clip_by_norm"),
        ({"ema": 0.9}, "moving average"),
        ({"amp": False}, "expected fully connected layers|fp32"),
        ({"net": net(rn.fc(8), rn.silu(), rn.fc(8), rn.silu())}, "activations, expected one of"),
        ({"net": net(rn.fc(8), rn.relu(), rn.fc(8), rn.relu6())}, "activations, expected one of"),
        ({"net": net(rn.fc(8), rn.relu())}, "2 layers"),
    ],
)
def test_what_the_kernel_does_not_cover_is_refused_with_the_reason(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        program("persistent", **options)
    compiled = program("auto", **options)
    scene = Scene(compiled.memory, compiled.backend.recipe)
    assert reasons_against(scene, train_pass(compiled.graph, scene).calls)


def test_wrong_rows_and_values_are_refused() -> None:
    compiled = program(lowering="xla")
    state = compiled.init(0)
    images, labels, indices = data_set()
    with pytest.raises(ValueError, match=r"row in indices is 40, expected one in \[0, 39\]"):
        compiled.train_steps(state, (images, labels), indices * 0 + 40, values=VALUES)
    with pytest.raises(TypeError, match="values for uint8 images is None"):
        compiled.train_steps(state, (images, labels), indices)
    with pytest.raises(ValueError, match=r"shape of values is \(3,\)"):
        compiled.train_steps(state, (images, labels), indices, values=VALUES[:3])
    with pytest.raises(ValueError, match=r"shape of images is \(12, 4, 6, 1\)"):
        compiled.train_steps(state, (images, labels), indices[:, :12], values=VALUES)
    with pytest.raises(ValueError, match="loop in the xla lowering is 'persistent'"):
        program("persistent", lowering="xla")
