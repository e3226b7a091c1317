"""How XLA is told to compile the loop of a small network."""

from __future__ import annotations

from typing import Any

import renaissance as rn
from renaissance.program.xla import XlaBackend, compile_options
from tests.program.support import small_program

SHAPE, ROWS, CLASSES = (3, 4, 1), 6, 5


def mlp(width: int = 24, **options: Any) -> rn.Program:
    net = rn.seq(rn.flatten(), rn.fc(width), rn.relu(), rn.fc(CLASSES))
    given = {"optimizer": rn.AdamW(), "scheduler": rn.Constant(0.01), "amp": True}
    return rn.compile(net, SHAPE, ROWS, lowering="xla", **{**given, **options})


def test_only_small_products_in_mixed_precision_on_a_gpu_have_options() -> None:
    def options(program: rn.Program, platform: str = "gpu") -> dict[str, Any]:
        assert isinstance(program.backend, XlaBackend)
        return compile_options(program.backend.recipe, platform)

    assert options(mlp()) == {"xla_gpu_experimental_force_split_k": 1}
    assert options(mlp(), "cpu") == {}
    assert options(mlp(amp=False)) == {}
    assert options(mlp(width=1 << 17)) == {}, "2.2 million parameters"
    assert options(small_program(amp=True)) == {}, "convolutions"
