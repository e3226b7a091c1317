"""How the kernel that makes batches is launched, from the chain of transforms alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.targets import Kernel, Target
from renaissance.lowering.launches.planned import Plan, PlannedLaunch
from renaissance.lowering.launches.tiles import ceil_div

HEAD, FIELDS = 4, 16
KIND, OUT_H, OUT_W = 0, 8, 9
ROTATE, SCALE = 5, 6
"""As ``csrc/data/kinds.h`` lays a chain out."""
PIXELS_OF_A_THREAD = 8


def operations_of(chain: Sequence[int]) -> list[Sequence[int]]:
    """The records of a chain's operations."""
    return [chain[at : at + FIELDS] for at in range(HEAD, len(chain), FIELDS)]


def kept_bytes(chain: Sequence[int]) -> int:
    """The largest picture between two warps; 0 where there are not two."""
    warps = [op for op in operations_of(chain) if op[KIND] in (ROTATE, SCALE)]
    most = max((op[OUT_H] * op[OUT_W] * chain[2] for op in warps[:-1]), default=0)
    return ceil_div(int(most), 16) * 16


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

    A picture that is kept between two warps is needed whole: then it is not cut into pieces.

    Args:
        call: Whose launch.
        threads: Of a block; other than the chosen number only to measure it.
        pixels: That a thread of a piece makes; likewise.
    """
    a = call.attributes
    chain = [int(number) for number in a["chain"]]
    height, width = result_size(chain)
    kept = kept_bytes(chain)
    threads = threads or _threads(height * width, kept)
    piece = height * width if kept else min(height * width, threads * pixels)
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
    # two pictures in turn, where a warp reads the one before
    return [PlannedLaunch(kernel, (a["rows"], pieces, 1), threads, 2 * kept)]


def _threads(pixels: int, kept: int) -> int:
    """Threads of a block, as measured where no large picture is kept (benchmarks/notes_data.md)."""
    if pixels <= 128 * PIXELS_OF_A_THREAD:
        return 128
    return 256 if kept else 64


PLANS: dict[Target, Plan] = {targets.AUGMENT_BATCH: lambda call: augment_batch(call)}
