"""Batches made on the device by one custom call, in a train step's place for loading a batch.

The samples of a data set lie on the device; a batch is a list of their ids. The call draws every
random number itself, transforms, normalises and writes pictures and labels: into the input slot of
a step, or as a stack of many batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import PlanError, fail
from renaissance.lowering.calls import ffi, targets
from renaissance.lowering.calls.in_place import Argument, InPlaceCall, PlanLaunches
from renaissance.lowering.calls.scene import BATCH
from renaissance.lowering.calls.targets import Target
from renaissance.lowering.launches.augment import kept_bytes

MOST_KEPT_BYTES = 48 * 1024
"""Of a picture between two warps; two of them fit the shared memory of every device."""


@dataclass(frozen=True)
class Augmentation:
    """A chain of transforms as the custom call takes it.

    Attributes:
        chain: Height, width, channels, number of operations, then 16 integers for each operation
            (``csrc/data/kinds.h``).
        shape: Height, width and channels of the pictures that come out.
    """

    chain: tuple[int, ...]
    shape: tuple[int, int, int]

    @property
    def fits(self) -> bool:
        """Whether the kernel can hold what it keeps between two warps."""
        return kept_bytes(self.chain) <= MOST_KEPT_BYTES


class Drafts(NamedTuple):
    """What batches are made from, on the device.

    Attributes:
        images: uint8 [n, h, w, c].
        labels: int32 [n].
        ids: int32 [s, rows]: the samples of each batch.
        seed: uint32 [2], low and high half.
        epoch: uint32 scalar.
        tables: int32, those of the chain's operations.
        values: [c, 256] of the pictures' type: what a byte stands for.
    """

    images: Any
    labels: Any
    ids: Any
    seed: Any
    epoch: Any
    tables: Any
    values: Any


_OUTSIDE = {name: Argument(name) for name in Drafts._fields}
_BEGIN_LOAD, _BEGIN_DATA, _BEGIN_LABEL = 5, 3, 4
"""Of BEGIN_STEP's operands, the first five load a batch; these two of them are written."""


def make_batches(
    augmentation: Augmentation, drafts: Drafts, plan_launches: PlanLaunches
) -> tuple[jax.Array, jax.Array]:
    """All batches at once, as a stack.

    Args:
        augmentation: What happens to a sample.
        drafts: From what.
        plan_launches: The kernels of a call.

    Returns:
        Images [s, rows, h, w, c] of the values' type and labels int32 [s, rows].
    """
    lead = drafts.ids.shape
    images = jax.ShapeDtypeStruct((*lead, *augmentation.shape), drafts.values.dtype)
    labels = jax.ShapeDtypeStruct(lead, jnp.int32)
    attributes = _attributes(
        augmentation,
        samples=drafts.images.shape[0],
        rows=int(np.prod(lead)),
        padded_channels=augmentation.shape[2],
        type=ffi.type_number(drafts.values.dtype),
    )
    operands = _operands(drafts, None)
    target: Target = targets.AUGMENT_BATCH
    call = InPlaceCall(target, (*_operands_outside(None), *_RESULTS), attributes)
    launches = plan_launches(call)
    return ffi.functional(target, *operands, images, labels, launches=launches, **attributes)


_RESULTS = (Argument("data"), Argument("label"))


def _operands(drafts: Drafts, batch: Any) -> tuple[Any, ...]:
    images, labels, ids, *rest = drafts
    return (images, labels, ids, batch, *rest)


def _operands_outside(batch: Argument | None) -> tuple[Argument | None, ...]:
    return _operands(Drafts(**_OUTSIDE), batch)


def _attributes(augmentation: Augmentation, **sizes: int) -> dict[str, Any]:
    return {**sizes, "chain": np.array(augmentation.chain, np.int64)}


def make_in_slot(
    calls: Sequence[InPlaceCall], augmentation: Augmentation, samples: int
) -> list[InPlaceCall]:
    """A train step that makes its batch instead of loading it.

    Args:
        calls: A step's calls, from its begin to its report.
        augmentation: What happens to a sample.
        samples: Of the data set.

    Returns:
        The calls with one that makes batch number ``batch`` of :class:`Drafts`, given as arguments
        of these names, in the place of the one that loads.

    Raises:
        PlanError: no call loads a batch.
    """
    result: list[InPlaceCall] = []
    for call in calls:
        if call.target == targets.LOAD_BATCH:
            result.append(_in_slot(call, augmentation, samples))
        elif call.target == targets.BEGIN_STEP:
            scalars = call.operands[_BEGIN_LOAD:]
            result.append(_in_slot(call, augmentation, samples))
            result.append(
                InPlaceCall(targets.SET_STEP_SCALARS, scalars, call.attributes, call.where)
            )
        else:
            result.append(call)
    if targets.AUGMENT_BATCH not in {call.target for call in result}:
        fail(PlanError, "calls of a step", [str(c) for c in calls][:3], "one that loads a batch")
    return result


def _in_slot(load: InPlaceCall, augmentation: Augmentation, samples: int) -> InPlaceCall:
    a = load.attributes
    attributes = _attributes(
        augmentation,
        samples=samples,
        rows=a["rows"],
        padded_channels=a["padded_channels"],
        type=a["type"],
    )
    slot = load.operands[_BEGIN_DATA], load.operands[_BEGIN_LABEL]
    operands = (*_operands_outside(BATCH), *slot)
    return InPlaceCall(targets.AUGMENT_BATCH, operands, attributes, "a batch from the data set")
