"""Prints the hash of an MLP after 200 fused steps: equal in every process, or it is a bug.

python benchmarks/hash_of_steps.py [--steps 200]
"""

from __future__ import annotations

import argparse

import numpy as np

import renaissance as rn


def main() -> None:
    """Train on fixed random batches and print the hash."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    hidden = [part for width in (1024, 512, 256) for part in (rn.fc(width), rn.relu())]
    net = rn.seq(rn.flatten(), *hidden, rn.fc(10))
    program = rn.compile(
        net, (28, 28, 1), 200, amp=True, optimizer=rn.AdamW(), lowering="fused",
        scheduler=rn.Constant(1e-3),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    images = rng.standard_normal((20, 200, 28, 28, 1), np.float32)
    labels = rng.integers(0, 10, (20, 200)).astype(np.int32)
    state = program.init(0)
    for _ in range(steps // 20):
        state, _ = program.train_steps(state, (images, labels))
    print(program.sha256(state))


if __name__ == "__main__":
    main()
