"""How the kernel that makes batches is launched, from the chain of transforms alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from renaissance.lowering import targets
from renaissance.lowering.in_place import InPlaceCall
from renaissance.lowering.launches import PLANS, PlannedLaunch
from renaissance.lowering.targets import Kernel
from renaissance.lowering.tiles import ceil_div

HEAD, FIELDS = 4, 16
KIND, IN_H, IN_W, OUT_H, OUT_W = 0, 6, 7, 8, 9
ROTATE, SCALE = 5, 6
"""As ``csrc/data/kinds.h`` lays a chain out."""
PIXELS_OF_A_THREAD = 8
MOST_STAGED_BYTES = 48 * 1024
"""Of a picture that a warp reads; two of them fit the shared memory of every device."""


def operations_of(chain: Sequence[int]) -> list[Sequence[int]]:
    """The records of a chain's operations."""
    return [chain[at : at + FIELDS] for at in range(HEAD, len(chain), FIELDS)]


def staged_bytes(chain: Sequence[int]) -> tuple[int, int]:
    """The largest picture that is staged for a warp, and how many are, two at most.

    The samples themselves are read where they lie if they are too large for it. What a warp reads
    of another one must be staged, however large.
    """
    warps = [op for op in operations_of(chain) if op[KIND] in (ROTATE, SCALE)]
    sizes = [int((op[IN_H] + 2) * (op[IN_W] + 2) * chain[2]) for op in warps]
    staged = [size for i, size in enumerate(sizes) if i or size <= MOST_STAGED_BYTES]
    return ceil_div(max(staged, default=0), 16) * 16, min(len(staged), 2)


def result_size(chain: Sequence[int]) -> tuple[int, int]:
    """Height and width of what comes out of a chain."""
    operations = operations_of(chain)
    if not operations:
        return int(chain[0]), int(chain[1])
    return int(operations[-1][OUT_H]), int(operations[-1][OUT_W])


def augment_batch(
    call: InPlaceCall, threads: int | None = None, pixels: int = PIXELS_OF_A_THREAD
) -> list[PlannedLaunch]:
    """Launch of ``rn_augment_batch``: a block for a picture, or for a piece of a large one.

    Where pictures are staged, all of one is needed: then it is not cut into pieces.

    Args:
        call: Whose launch.
        threads: Of a block; other than the chosen number only to measure it.
        pixels: That a thread of a piece makes; likewise.
    """
    a = call.attributes
    chain = [int(number) for number in a["chain"]]
    height, width = result_size(chain)
    staged, places = staged_bytes(chain)
    threads = threads or (128 if height * width <= 128 * PIXELS_OF_A_THREAD else 256)
    piece = height * width if staged else min(height * width, threads * pixels)
    constants: dict[str, Any] = {
        "CHAIN": ",".join(map(str, chain)),
        "HEIGHT": height,
        "WIDTH": width,
        "PADDED": a["padded_channels"],
        "HALF": a["type"],
        "PIECE": piece,
        "THREADS": threads,
    }
    macros = tuple(sorted((f"RN_{name}", value) for name, value in constants.items()))
    kernel = Kernel("augment_batch.cu", "augment_batch_kernel", macros)
    pieces = ceil_div(height * width, piece)
    return [PlannedLaunch(kernel, (a["rows"], pieces, 1), threads, staged * places)]


PLANS[targets.AUGMENT_BATCH] = lambda call: augment_batch(call)
