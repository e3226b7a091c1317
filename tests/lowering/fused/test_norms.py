"""How the passes of a norm are cut up: whole waves of blocks, and sums that fit their place."""

from __future__ import annotations

import re

import pytest

from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import Argument, InPlaceCall
from renaissance.lowering.fused.norms import PARTIAL_ROWS, ROWS_OF_A_BLOCK, partial_rows
from renaissance.lowering.launches.packs import RESIDENT_BLOCKS
from renaissance.lowering.launches.table import launches_of
from renaissance.lowering.launches.tiles import MULTIPROCESSORS
from renaissance.runtime.kernels import sources_of

CHANNELS = (3, 8, 24, 33, 64, 144, 256, 264, 512, 960, 1280, 2048, 4096)
NO_POOL = dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad", "argmax_bytes"), 0)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("rows", [1, 31, 33, 5000, 802816])
@pytest.mark.parametrize("channels", CHANNELS)
def test_no_second_wave_of_blocks_begins(channels: int, rows: int, half: int) -> None:
    pieces = partial_rows(rows, channels, half)
    assert 1 <= pieces <= min(PARTIAL_ROWS, -(-rows // ROWS_OF_A_BLOCK))
    sizes = {"rows": rows, "c": channels, "type": half, "partial_rows": pieces}
    x = Argument("x")
    given = tuple(
        None if i in (1, 2, 8, 9, 10, 11, 12, 16, 17, 18, 20, 21) else x for i in range(22)
    )
    backward = {**NO_POOL, **sizes, "activation": 1}
    calls = (
        InPlaceCall(targets.BATCH_NORM_STATISTICS, (x,) * 8, sizes),
        InPlaceCall(targets.BATCH_NORM_BACKWARD, given, backward),
    )
    passes = [
        launch
        for call in calls
        for launch in launches_of(call)
        if "finalise" not in launch.kernel.name
    ]
    assert len(passes) == 3
    for launch in passes:
        across, down, _ = launch.grid
        assert across * down <= RESIDENT_BLOCKS, launch.kernel.name


def test_the_kernels_keep_registers_for_as_many_blocks_as_are_launched() -> None:
    (resident,) = re.findall(r"kResident = (\d+);", sources_of("batch_norm_apply.cu")["map.cuh"])
    assert int(resident) * MULTIPROCESSORS == RESIDENT_BLOCKS
