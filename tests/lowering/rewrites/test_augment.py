"""Batches made by one custom call, on the device at hand: the host's bytes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import PlanError
from renaissance.lowering.launches.augment import kept_bytes
from renaissance.lowering.rewrites.augment import Augmentation, make_batches, make_in_slot
from renaissance.runtime import library
from tests.lowering.augment import CASES, EPOCHS, drafts_of, expected, host_loader

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

from tests.lowering.native import _launches


@pytest.mark.parametrize(("chain", "shape", "channels", "dtype"), CASES)
def test_a_stack_is_the_hosts_batches(
    chain: str, shape: tuple[int, int, int], channels: int, dtype: Any
) -> None:
    host = host_loader(chain, shape, channels, dtype)
    augmentation, _ = drafts_of(host, 0)
    make = jax.jit(lambda drafts: make_batches(augmentation, drafts, _launches()))
    for epoch in EPOCHS:
        _, drafts = drafts_of(host, epoch)
        images, labels = make(jax.tree.map(jnp.asarray, drafts))
        wanted, wanted_labels = expected(host, epoch)
        assert images.shape == wanted.shape and images.dtype == dtype
        assert np.asarray(images).tobytes() == wanted.tobytes()
        np.testing.assert_array_equal(labels, wanted_labels)


def test_an_id_out_of_range_takes_the_nearest_sample() -> None:
    augmentation, drafts = drafts_of(host_loader("cifar", (19, 19, 3), 4, np.float16), 0)
    make = jax.jit(lambda drafts: make_batches(augmentation, drafts, _launches()))
    last = len(drafts.images) - 1
    pairs = [make(drafts._replace(ids=jnp.asarray([row]))) for row in ([-5, 400], [0, last])]
    for wrong, right in zip(*pairs, strict=True):
        np.testing.assert_array_equal(wrong, right)


def test_what_is_kept_between_warps_must_fit() -> None:
    def kept(chain: str, side: int) -> int:
        augmentation, _ = drafts_of(host_loader(chain, (side, side, 3), 3, np.float16), 0)
        assert augmentation.fits is (kept_bytes(augmentation.chain) <= 48 * 1024)
        return kept_bytes(augmentation.chain)

    assert kept("one warp", 224) == kept("cifar", 224) == 0
    assert kept("all", 32) == 38 * 38 * 3 // 16 * 16 + 16
    assert kept("all", 224) > 48 * 1024


def test_a_step_that_loads_no_batch_is_refused() -> None:
    with pytest.raises(PlanError, match="one that loads a batch"):
        make_in_slot([], Augmentation((1, 1, 1, 0), (1, 1, 1)), 1)
