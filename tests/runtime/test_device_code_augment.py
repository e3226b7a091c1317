"""The source of the kernel that makes batches, run on the processor: the host's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.launches.augment import augment_batch
from tests.emulation.run import COMPILER, emulate
from tests.lowering.augment import CASES, EPOCHS, drafts_of, expected, host_loader

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile device code with")


@pytest.mark.parametrize(("chain", "shape", "channels", "dtype"), CASES[2:])
def test_the_kernel_makes_the_hosts_batches(
    chain: str, shape: tuple[int, int, int], channels: int, dtype: Any
) -> None:
    host = host_loader(chain, shape, channels, dtype, batch_size=6)
    for epoch in EPOCHS:
        augmentation, drafts = drafts_of(host, epoch)
        wanted, wanted_labels = expected(host, epoch)
        rows = drafts.ids.shape[1]
        sizes = {"rows": rows, "padded_channels": channels, "type": int(dtype == np.float16)}
        call = InPlaceCall(targets.AUGMENT_BATCH, (), {**sizes, "chain": augmentation.chain})
        (launch,) = augment_batch(call)
        for batch in range(2):
            data = np.full((rows + 1, *augmentation.shape), np.nan, dtype)
            label = np.full(rows + 1, -1, np.int32)
            images, labels, ids, *rest = drafts
            number = np.array(batch, np.int32)
            given = [images, labels, ids, number, *rest, data, label, None, 0, len(images)]
            emulate(launch, "AugmentBatch", "PPPPPPPPPPPqqqii", [*given, *sizes.values()])
            assert data[:rows].tobytes() == wanted[batch].tobytes()
            np.testing.assert_array_equal(label[:rows], wanted_labels[batch])
            assert np.isnan(data[rows]).all() and label[rows] == -1, "written past the end"
