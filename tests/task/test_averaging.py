"""Switching: the averaged weights become the main weights, and nothing else changes."""

from __future__ import annotations

import numpy as np

import renaissance as rn
from renaissance.core.types import Region
from renaissance.task.averaging import adopt_average


def test_weights_become_the_average_and_compute_copies_follow():
    model = rn.seq(rn.conv(4, 3), rn.bn(), rn.relu(), rn.gap(), rn.fc(3))
    program = rn.compile(model, (6, 6, 4), 4, optimizer=rn.SGD(momentum=0.9), amp=True, ema=0.9)
    state = program.init(3)
    # an average that differs from the weights, as after some steps
    moved = {r: {n: v + 1 for n, v in state.region(r).items()} for r in state if r.name[0] == "E"}
    state = state.replace(moved)
    after = adopt_average(state)
    for region in state:
        for name, value in after[region].items():
            if region.name.startswith("W_"):
                source = state[Region["E" + region.name[1:]]][name]
            elif region.name.startswith("A_"):
                source = state[Region["E" + region.name[1:]]][name].astype(np.float16)
            else:
                source = state[region][name]
            assert np.array_equal(value, source), (region, name)
            assert value.dtype == source.dtype
    assert not np.array_equal(
        after[Region.W_FC_WEIGHT]["fc1.weight"], state[Region.W_FC_WEIGHT]["fc1.weight"]
    )
