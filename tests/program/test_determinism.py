"""Same seed, same bits: whatever the process."""

from __future__ import annotations

import subprocess
import sys

from renaissance.runtime import library

RUN = """
import numpy as np, renaissance as rn
from renaissance.runtime import library
net = rn.seq(rn.conv(8, 3, 1, 1), rn.bn(), rn.relu(), rn.dropout(0.2), rn.gap(), rn.fc(5))
options = {"amp": True, "ema": 0.9, "optimizer": rn.AdamW()}
for lowering in ["xla"] + ["fused"] * library.status().custom_calls:
    program = rn.compile(net, (8, 8, 3), 16, lowering=lowering, **options)
    state = program.init(11)
    rng = np.random.default_rng(0)
    for _ in range(50):
        images = rng.standard_normal((16, 8, 8, 3)).astype(np.float32)
        state, _ = program.train_step(state, (images, rng.integers(0, 5, 16)))
    print(lowering, program.sha256(state))
"""


def test_five_fresh_processes_end_at_one_hash_in_each_lowering(
    compiling_anew: dict[str, str],
) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, env=compiling_anew
        )
        for _ in range(5)
    ]
    reports = [process.communicate(timeout=240)[0].split() for process in started]
    assert all(process.returncode == 0 for process in started)
    lowerings, hashes = reports[0][::2], reports[0][1::2]
    assert reports == [reports[0]] * 5
    assert lowerings == ["xla"] + ["fused"] * library.status().custom_calls
    assert all(len(one) == 64 for one in hashes)
