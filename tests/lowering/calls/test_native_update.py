"""Host twins of what happens to whole regions: optimizers, averages, scalars, the input slot."""

from __future__ import annotations

from math import log
from typing import Any

import jax
import numpy as np
import pytest

from renaissance.algo.ema import EMA
from renaissance.algo.loss_scale import LossScale
from renaissance.algo.optimizer import LARS, SGD, Adam, AdamW, bias_correction
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.ffi import Updated
from renaissance.lowering.fused.update import lars_attributes, optimizer_attributes
from renaissance.runtime import library
from tests.lowering.native import run, struct

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

OPTIMIZERS = [
    SGD(),
    SGD(weight_decay=0.01),
    SGD(momentum=0.9, weight_decay=0.01),
    SGD(momentum=0.9, nesterov=True, weight_decay=0.01),
    Adam(weight_decay=0.01),
    AdamW(weight_decay=0.01),
    AdamW(beta1=0.0),
]


def scalar(value: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array([value], dtype)


def arrays(seed: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    w, g, m = (rng.standard_normal(size).astype(np.float32) for _ in range(3))
    return [w, g, m, rng.random(size).astype(np.float32)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
@pytest.mark.parametrize(("size", "decay_from"), [(1000, 129), (77, 77)])
def test_every_optimizer_over_a_region(optimizer: Any, size: int, decay_from: int) -> None:
    w, g, m, v = arrays(size, size)
    slots, t, lr = optimizer.slots, 3, 0.05
    m, v = (m if slots.first_moment else None), (v if slots.second_moment else None)
    betas = (optimizer.beta1, optimizer.beta2) if slots.second_moment else (0.0, 0.0)
    corrections = [scalar(bias_correction(b, t, np.dtype(np.float32))) for b in betas]

    def after(flag: int) -> list[np.ndarray]:
        return run(
            targets.OPTIMIZER, Updated(w), g,
            None if m is None else Updated(m), None if v is None else Updated(v),
            scalar(lr), *corrections, scalar(flag, np.int32), None, None, None, None,
            count=size, decay_from=decay_from, **optimizer_attributes(optimizer),
        )  # fmt: skip

    expected = []
    for part, decay in ((slice(0, decay_from), False), (slice(decay_from, size), True)):
        moments = (None if x is None else x[part] for x in (m, v))
        new = optimizer.update(w[part], g[part], *moments, lr=lr, t=t, decay=decay)
        expected.append([x for x in new if x is not None])
    for ours, *theirs in zip(after(0), *expected, strict=True):
        np.testing.assert_allclose(ours, np.concatenate(theirs), rtol=1e-5, atol=1e-6)
    for ours, old in zip(after(1), [x for x in (w, m, v) if x is not None], strict=True):
        np.testing.assert_array_equal(ours, old, err_msg="a raised flag changes nothing")


def test_the_optimizer_unscales_clips_casts_and_averages_in_one_pass() -> None:
    size, decay_from, scale = 300, 100, 1024.0
    w, g, m, v = arrays(0, size)
    raw, average = (g[decay_from:] * scale).astype(np.float16), arrays(1, size)[0]
    optimizer = AdamW(weight_decay=0.1)
    attributes = optimizer_attributes(optimizer) | {"max_abs": 0.5, "ema_decay": 0.9}
    half = jax.ShapeDtypeStruct(raw.shape, np.float16)
    new_w, _, _, copy, new_e = run(
        targets.OPTIMIZER, Updated(w), g * scale, Updated(m), Updated(v), scalar(0.01),
        scalar(0.1), scalar(0.001), scalar(0, np.int32), scalar(scale), raw, half, Updated(average),
        count=size, decay_from=decay_from, **attributes,
    )  # fmt: skip
    clipped = np.concatenate([g[:decay_from], raw.astype(np.float32) / scale]).clip(-0.5, 0.5)
    plain = [
        optimizer.update(w[p], clipped[p], m[p], v[p], lr=0.01, t=1, decay=d).w
        for p, d in ((slice(0, decay_from), False), (slice(decay_from, None), True))
    ]
    np.testing.assert_allclose(new_w, np.concatenate(plain), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(copy, np.asarray(new_w)[decay_from:].astype(np.float16))
    np.testing.assert_allclose(new_e, EMA(0.9).update(average, np.asarray(new_w)), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("g_at", "raw_at"), [(None, None), (0, None), (58, None), (None, 130)])
def test_one_pass_finds_a_gradient_that_is_not_finite(
    bad: float, g_at: int | None, raw_at: int | None
) -> None:
    g = np.linspace(-3e38, 3e38, 59, dtype=np.float32)
    raw = np.linspace(-65504, 65504, 131).astype(np.float16)
    if g_at is not None:
        g[g_at] = bad
    if raw_at is not None:
        raw[raw_at] = bad
    is_bad = g_at is not None or raw_at is not None
    for flag in (0, 1):
        sizes = {"count": g.size, "raw_count": raw.size}
        (after,) = run(targets.CHECK_FINITE, g, raw, Updated(scalar(flag, np.int32)), **sizes)
        assert int(after[0]) == max(flag, int(is_bad))


@pytest.mark.parametrize(
    "optimizer",
    [LARS(weight_decay=0.1), LARS(nesterov=True, weight_decay=0.1), LARS(momentum=0.0)],
    ids=repr,
)
def test_lars_takes_every_tensor_of_a_region_by_its_own_ratio(optimizer: LARS) -> None:
    counts, begins = [100, 1, 300], [0, 1, 2]
    w, g, m, _ = arrays(9, 640)
    g[128] = 0.0  # no gradient at all: the ratio is 1
    table = {"begins": np.array(begins, np.int64), "counts": np.array(counts, np.int64)}
    (n,) = run(
        targets.LARS_NORMS, w, g, jax.ShapeDtypeStruct((192,), np.float32),
        **table,
    )  # fmt: skip
    moment = Updated(m) if optimizer.slots.first_moment else None
    new = run(
        targets.LARS_UPDATE, Updated(w), g, moment, n, scalar(0.5), scalar(0, np.int32),
        **lars_attributes(optimizer), **table,
    )  # fmt: skip
    for i, (begin, count) in enumerate(zip(begins, counts, strict=True)):
        part = slice(128 * begin, 128 * begin + count)
        old = m[part] if moment else None
        expected = optimizer.update(w[part], g[part], old, None, lr=0.5, t=1, decay=True)
        norms = np.linalg.norm(w[part].astype(float)), np.linalg.norm(g[part].astype(float))
        np.testing.assert_allclose(n[64 * i : 64 * i + 2], norms, rtol=1e-6)
        np.testing.assert_allclose(new[0][part], expected.w, rtol=1e-5, atol=1e-6)
        if moment:
            np.testing.assert_allclose(new[1][part], expected.m, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [None, np.inf, -np.inf, np.nan])
def test_gradients_are_unscaled_checked_and_clipped(bad: float | None) -> None:
    g = arrays(3, 1000)[1] * 64
    if bad is not None:
        g[777] = bad
    out, flag = run(
        targets.CHECK_AND_UNSCALE, Updated(g), scalar(64.0), Updated(scalar(0, np.int32)),
        count=g.size, max_abs=1.0,
    )  # fmt: skip
    assert flag[0] == (bad is not None)
    np.testing.assert_array_equal(out, np.clip(g / 64, -1, 1))


@pytest.mark.parametrize(
    ("value", "max_norm"), [(1e20, 1.0), (1e-30, 1.0), (3e38, 5.0), (1.0, 10.0)]
)
def test_a_joint_norm_neither_overflows_nor_vanishes(value: float, max_norm: float) -> None:
    g = np.full(100, value, np.float32)
    partial = struct((1024,), np.float32)
    clipped, _ = run(
        targets.CLIP_BY_NORM, Updated(g), partial, count=g.size, max_norm=max_norm, rows=512
    )
    exceeds = value * 10 > max_norm
    np.testing.assert_allclose(clipped, max_norm / 10 if exceeds else g, rtol=1e-6)


@pytest.mark.parametrize("flag", [0, 1])
def test_averages_sums_and_copies_stop_at_a_raised_flag(flag: int) -> None:
    w, e, total, _ = arrays(4, 333)
    raised = scalar(flag, np.int32)
    (new,) = run(targets.EMA_UPDATE, Updated(e), w, raised, count=w.size, decay=0.999)
    np.testing.assert_allclose(new, e if flag else EMA(0.999).update(e, w), rtol=1e-6)
    (new,) = run(targets.ACCUMULATE, w, Updated(total), raised, count=w.size)
    np.testing.assert_array_equal(new, total if flag else total + w)
    (new,) = run(targets.COPY, w, Updated(total), raised, bytes=w.nbytes)
    np.testing.assert_array_equal(new, total if flag else w)


@pytest.mark.parametrize("applied", [0, 1, 4, 5, 900])
def test_the_scalars_of_a_step(applied: int) -> None:
    table = np.linspace(0.1, 0.5, 5, dtype=np.float32)
    one = jax.ShapeDtypeStruct((1,), np.float32)
    lr, first, second, flag = run(
        targets.SET_STEP_SCALARS, table, scalar(applied, np.int32), one, one, one,
        Updated(scalar(1, np.int32)), table_length=5, log_beta1=log(0.9), log_beta2=log(0.999),
    )  # fmt: skip
    assert lr[0] == table[min(applied, 4)] and flag[0] == 0
    for ours, beta in ((first, 0.9), (second, 0.999)):
        np.testing.assert_allclose(ours[0], 1 - np.float64(beta) ** (applied + 1), rtol=1e-6)


def test_the_loss_scale_follows_its_rule_over_a_long_run() -> None:
    rule = LossScale(initial=8.0, growth_interval=3, maximum=32.0, minimum=2.0)
    expected, clean, streak = np.float32(8), np.int32(0), 0
    counters = [scalar(0, np.int32) for _ in range(4)]  # applied, skipped, clean, overflow run
    scale, applied = scalar(8.0), 0
    pattern = [0] * 4 + [1, 1, 0] + [0] * 12 + [1] * 6 + [0] * 4
    for step, overflow in enumerate(pattern):
        *counters, scale = run(
            targets.ADVANCE_COUNTERS, scalar(overflow, np.int32), *map(Updated, counters),
            Updated(scale), maximum=rule.maximum, minimum=rule.minimum,
            growth_interval=rule.growth_interval,
        )  # fmt: skip
        expected, clean = rule.advance(expected, clean, not overflow)
        applied, streak = applied + (not overflow), streak + 1 if overflow else 0
        ours = [int(c[0]) for c in counters]
        assert ours == [
            applied,
            step + 1 - applied,
            int(clean),
            streak,
        ]
        assert float(scale[0]) == float(expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("channels", "padded"), [(1, 1), (3, 4), (3, 3)])
def test_a_batch_is_taken_into_the_input_slot(dtype: Any, channels: int, padded: int) -> None:
    images = np.random.default_rng(0).standard_normal((3, 2, 5, 4, channels)).astype(np.float32)
    labels = np.arange(6, dtype=np.int32).reshape(3, 2)
    pixels = 2 * 5 * 4
    data, label = run(
        targets.LOAD_BATCH, images, labels, scalar(2, np.int32),
        jax.ShapeDtypeStruct((2, 5, 4, padded), dtype), jax.ShapeDtypeStruct((2,), np.int32),
        pixels=pixels, channels=channels, padded_channels=padded, rows=2,
        from_type=0, type=int(dtype == np.float16),
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(data)[..., :channels], images[2].astype(dtype))
    assert not np.asarray(data)[..., channels:].any()
    np.testing.assert_array_equal(label, labels[2])
