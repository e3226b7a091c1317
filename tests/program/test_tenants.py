"""Features in the bytes of dead gradients change no bit of what a program learns."""

from __future__ import annotations

from typing import Any

import pytest

import renaissance as rn
from renaissance.graph.memory_plan import layout, tenants
from renaissance.runtime import library
from tests.program.support import CLASSES, SHAPE, bits, random_batch

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

CASES: dict[str, dict[str, Any]] = {
    "one pass": {"optimizer": rn.SGD(momentum=0.9, weight_decay=1e-3)},
    "casts and a joint norm": {"optimizer": rn.AdamW(), "grad_clip": rn.ClipByGlobalNorm(0.1)},
    "layer-wise rates": {"optimizer": rn.LARS()},
}


def trained(options: dict[str, Any]) -> tuple[dict[str, bytes], int]:
    """The state after three steps of a net whose gradients have room, and the tenants it had."""
    net = rn.seq(
        *(rn.conv(8, 3, 1, 1), rn.bn(), rn.relu(), rn.conv(64, 3, 1, 1), rn.bn(), rn.relu()),
        *(rn.conv(8, 1, 1, 0), rn.bn(), rn.relu(), rn.flatten(), rn.fc(64), rn.fc(CLASSES)),
    )
    program = rn.compile(net, SHAPE, 8, amp=True, lowering="fused", **options)
    state: Any = program.init(0)
    for seed in range(3):
        state, _ = program.train_step(state, random_batch(seed))
    return bits(state), len(program.graph.memory[0].layout.tenants)


@pytest.mark.parametrize("case", CASES)
def test_training_is_the_same_with_and_without_them(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "SMALLEST_TENANT", 256)
    ours, count = trained(CASES[case])
    monkeypatch.setattr(layout, "accommodate", lambda sizes, lives: {})
    theirs, none = trained(CASES[case])
    assert (count > 2, none) == (True, 0)
    changed = [name for name in theirs if not name.startswith("G_") and ours[name] != theirs[name]]
    assert not changed
