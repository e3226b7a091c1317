"""Same seed, same bits: whatever the process."""

from __future__ import annotations

import subprocess
import sys

RUN = """
import numpy as np, renaissance as rn
net = rn.seq(rn.conv(8, 3, 1, 1), rn.bn(), rn.relu(), rn.dropout(0.2), rn.gap(), rn.fc(5))
program = rn.compile(net, (8, 8, 3), 16, amp=True, ema=0.9, optimizer=rn.AdamW())
state = program.init(11)
rng = np.random.default_rng(0)
for _ in range(50):
    images = rng.standard_normal((16, 8, 8, 3)).astype(np.float32)
    state, _ = program.train_step(state, (images, rng.integers(0, 5, 16)))
print(program.sha256(state))
"""


def test_five_fresh_processes_end_at_one_hash(compiling_anew: dict[str, str]) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, env=compiling_anew
        )
        for _ in range(5)
    ]
    hashes = {process.communicate(timeout=240)[0].strip() for process in started}
    assert all(process.returncode == 0 for process in started)
    assert len(hashes) == 1 and len(hashes.pop()) == 64
