"""The gradient of a pointwise convolution's input and the norm that reads it become one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import renaissance as rn
from renaissance.core.types import Bank
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall, Location, Operand
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.passes import train_pass
from renaissance.lowering.launches.pointwise_backward import (
    ADDEND,
    DSHORTCUT,
    DY,
    PRODUCT,
    W,
    X,
    shape_of,
)
from renaissance.lowering.rewrites import pointwise_backward as rewrite
from renaissance.lowering.rewrites.pointwise_backward import fuse_pointwise_backward, pair_at
from renaissance.runtime import library

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

ROWS, C, K = 8192, 32, 16
FUSED = targets.POINTWISE_BACKWARD_DATA


def place(name: str, at: int, rows: int = ROWS, channels: int = C) -> Location:
    return Location(Bank.SCRATCH, at << 20, rows * channels * 2, name)


DY_OF, PRODUCT_OF, OTHER = place("dy", 0, channels=K), place("product", 1), place("other", 2)
FILTERS = Location(Bank.PERSISTENT, 0, K * C * 2, "w")
X_OF, DX, DSHORTCUT_OF = place("x", 4), place("dx", 5), place("dshortcut", 6)


def dgrad(dy: Location, w: Location, dx: Location, **other: int) -> InPlaceCall:
    sizes = {"n": 1, "h": ROWS, "w": 1, "c": C, "k": K, "p": ROWS, "q": 1, "r": 1, "s": 1}
    sizes |= {"stride": 1, "pad": 0, "groups": 1, "type": 1, "workspace_bytes": 0, **other}
    return InPlaceCall(targets.CONV_BACKWARD_DATA, (dy, w, dx, None), sizes, "conv")


def norm(dy: Location, addend: Location | None, activation: int, dshortcut: bool) -> InPlaceCall:
    vectors = [Location(Bank.PERSISTENT, 4096 + 128 * i, 4 * C, "vector") for i in range(6)]
    partial = Location(Bank.SCRATCH, 7 << 20, 1 << 17, "partial")
    operands: list[Operand] = [dy, None, None, X_OF, *vectors[:4], *[None] * 5, DX, *vectors[4:]]
    operands += [DSHORTCUT_OF if dshortcut else None, None, None, partial, addend, None]
    sizes = {"rows": ROWS, "c": C, "type": 1, "activation": activation, "partial_rows": 9}
    return InPlaceCall(targets.BATCH_NORM_BACKWARD, tuple(operands), sizes, "bn")


def copy(source: Location, result: Location) -> InPlaceCall:
    return InPlaceCall(targets.CHANNEL_PADDING, (source, result))


def names(calls: Sequence[InPlaceCall]) -> list[str]:
    return [call.target.name.removeprefix("rn_") for call in calls]


def test_a_pair_becomes_one_call_that_leaves_dz_at_the_products_place() -> None:
    first = dgrad(DY_OF, FILTERS, PRODUCT_OF)
    (fused,) = fuse_pointwise_backward([first, norm(PRODUCT_OF, None, 1, False)])
    assert fused.target == FUSED
    assert [fused.operands[i] for i in (DY, W, PRODUCT, X)] == [DY_OF, FILTERS, PRODUCT_OF, X_OF]
    assert fused.attributes["k"] == K


@pytest.mark.parametrize("is_addend", [False, True])
def test_with_a_plain_shortcut_dz_lies_there_and_the_other_gradient_is_the_addend(
    is_addend: bool,
) -> None:
    both = (OTHER, PRODUCT_OF) if is_addend else (PRODUCT_OF, OTHER)
    (fused,) = fuse_pointwise_backward([dgrad(DY_OF, FILTERS, PRODUCT_OF), norm(*both, 1, True)])
    assert fused.operands[PRODUCT] is None
    assert (fused.operands[ADDEND], fused.operands[DSHORTCUT]) == (OTHER, DSHORTCUT_OF)


FIRST, LAST = dgrad(DY_OF, FILTERS, PRODUCT_OF), norm(PRODUCT_OF, None, 1, False)


@pytest.mark.parametrize(
    "calls",
    [
        [dgrad(DY_OF, FILTERS, PRODUCT_OF, stride=2), LAST],
        [dgrad(DY_OF, FILTERS, PRODUCT_OF, r=3, s=3, pad=1), LAST],
        [dgrad(DY_OF, FILTERS, PRODUCT_OF, type=0), LAST],
        [dgrad(DY_OF, FILTERS, PRODUCT_OF, k=12), LAST],
        [FIRST, norm(PRODUCT_OF, None, 3, False)],
        [FIRST, norm(PRODUCT_OF, PRODUCT_OF, 1, False)],
        [FIRST, LAST, copy(PRODUCT_OF, OTHER)],
        [FIRST, copy(PRODUCT_OF, OTHER), LAST],
        [FIRST, copy(X_OF, DY_OF), LAST],
        [FIRST, copy(X_OF, replace(FILTERS, nbytes=4)), LAST],
        [
            dgrad(replace(DSHORTCUT_OF, nbytes=DY_OF.nbytes), FILTERS, PRODUCT_OF),
            norm(PRODUCT_OF, OTHER, 1, True),
        ],
    ],
    ids=[
        "stride", "taps", "fp32", "k", "activation", "twice", "read later", "read between",
        "dy gone", "w gone", "dz on dy",
    ],
)  # fmt: skip
def test_what_does_not_fit_stays(calls: list[InPlaceCall]) -> None:
    assert fuse_pointwise_backward(calls) == calls


def test_few_pixels_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "FEWEST_ROWS", ROWS + 1)
    assert fuse_pointwise_backward([FIRST, LAST]) == [FIRST, LAST]


def test_a_product_that_is_dz_may_be_read_again() -> None:
    calls = [FIRST, norm(PRODUCT_OF, None, 0, False), copy(PRODUCT_OF, OTHER)]
    assert names(fuse_pointwise_backward(calls)) == ["pointwise_backward_data", "channel_padding"]


def test_a_gradient_made_where_dy_lies_is_made_at_the_products_place() -> None:
    over_dy = replace(OTHER, offset=DY_OF.offset)
    maker = copy(X_OF, over_dy)
    calls = [FIRST, maker, norm(PRODUCT_OF, over_dy, 1, True)]
    found, fused = fuse_pointwise_backward(calls)
    assert names([found, fused]) == ["channel_padding", "pointwise_backward_data"]
    assert isinstance(moved := found.operands[1], Location)
    assert (moved.offset, moved.nbytes) == (PRODUCT_OF.offset, PRODUCT_OF.nbytes)
    assert isinstance(addend := fused.operands[ADDEND], Location)
    assert addend.offset == PRODUCT_OF.offset
    assert pair_at([*calls, copy(over_dy, DX)], 0) is None
    assert pair_at([FIRST, maker, norm(PRODUCT_OF, over_dy, 1, False)], 0) is None


@pytest.mark.parametrize("limit", [99 << 10, 163 << 10])
@pytest.mark.parametrize(("k", "c"), [(128, 256), (256, 1024), (384, 64), (192, 32), (24, 144)])
def test_a_device_of_less_shared_memory_gets_smaller_blocks(k: int, c: int, limit: int) -> None:
    sizes = {"rows": ROWS, "k": k, "c": c}
    for maps, bits in ((1, False), (2, True), (3, True)):
        shape = shape_of({**sizes, "shared_limit": limit}, maps, bits=bits)
        assert shape is not None
        assert shape.shared_bytes(k, maps, bits=bits) <= limit
        assert shape_of(sizes, maps, bits=bits) is not None


def resnet() -> tuple[rn.Layer, tuple[int, int, int]]:
    blocks = [rn.block(8, 32, rn.RESNET_1_3_1_DS), rn.block(8, 32, rn.RESNET_1_3_1)]
    blocks += [rn.block(8, 32, rn.RESNET_1_3_1), rn.block(16, 40, rn.RESNET_1_3_1_DS)]
    return rn.seq(rn.cbrp(16, 5, 2, 2, 3, 2, 1), *blocks, rn.gap(), rn.fc(7)), (21, 19, 3)


def mobilenet() -> tuple[rn.Layer, tuple[int, int, int]]:
    first = (rn.conv(8, 3, 2, 1), rn.bn(), rn.relu6(), rn.mbconv(6, 8, 1), rn.mbconv(6, 16, 2))
    return rn.seq(*first, rn.mbconv(6, 16, 1), rn.gap(), rn.fc(7)), (15, 17, 3)


@pytest.mark.parametrize("net", [resnet, mobilenet], ids=["resnet", "mobilenet"])
def test_a_step_of_a_network_keeps_its_bits(net, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    layers, shape = net()
    rng = np.random.default_rng(0)
    images = rng.standard_normal((6, *shape)).astype(np.float32)
    labels = rng.integers(0, 7, 6).astype(np.int32)
    hashes, fused = [], []
    for fewest in (1, 1 << 30):
        monkeypatch.setattr(rewrite, "FEWEST_ROWS", fewest)
        program = rn.compile(layers, shape, 6, lowering="fused", amp=True, num_classes=7)
        calls = train_pass(program.graph, Scene(program.memory, program.backend.recipe)).calls
        fused.append([call for call in calls if call.target == FUSED])
        state, _ = program.train_step(program.init(1), (images, labels))
        hashes.append(program.sha256(state))
    assert hashes[0] == hashes[1]
    assert len(fused[0]) >= 2
    assert not fused[1]
