"""Checks and times the persistent MLP kernel on the device at hand.

python benchmarks/mlp_persistent.py [--steps 2000] [--quick]
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
from mlp_persistent_device import Driver, Mlp, build
from mlp_persistent_reference import ADAMW, MOMENTUM, NESTEROV, SGD, Reference

WIDTHS, BATCH = (784, 1024, 512, 256, 10), 200


def problem(seed, widths=WIDTHS, samples=6000):
    rng = np.random.default_rng(seed)
    weights = [
        rng.uniform(-1, 1, (k, c)).astype(np.float32) * np.float32(np.sqrt(6 / c))
        for c, k in zip(widths, widths[1:], strict=False)
    ]
    biases = [(rng.normal(size=k) * 0.05).astype(np.float32) for k in widths[1:]]
    images = rng.integers(0, 256, (samples, widths[0]), dtype=np.uint8)
    table = ((np.arange(256) / 255 - 0.1307) / 0.3081).astype(np.float16)
    teacher = rng.normal(size=(widths[0], widths[-1]))
    labels = (table[images].astype(np.float64) @ teacher).argmax(1).astype(np.int32)
    return weights, biases, images, table, labels


def relative(ours, reference):
    return float(np.linalg.norm(ours - reference) / np.linalg.norm(reference))


def check(
    driver,
    program,
    rule,
    steps,
    *,
    loss_scale=2.0**15,
    widths=WIDTHS,
    batch=BATCH,
    lr=1e-3,
    title="",
    growth=2000,
    uint8=True,
):
    weights, biases, images, table, labels = problem(rule + 7, widths)
    indices = np.random.default_rng(3).integers(0, len(labels), (steps, batch))
    lr_table = (lr * (1 - 0.01 * np.arange(steps + 1))).astype(np.float32)
    common = {"lr_table": lr_table, "loss_scale": loss_scale, "growth_interval": growth}
    net = Mlp(
        driver,
        program,
        widths,
        weights,
        biases,
        images=images if uint8 else table[images],
        labels=labels,
        table=table,
        indices=indices,
        **common,
    )
    net.launch(steps)
    net.wait()
    ref = Reference(weights, biases, rule=rule, **common)
    losses = [ref.step(table[images[i]].astype(np.float64), labels[i]) for i in indices]
    ours = net.history(steps).astype(np.float64)
    worst_loss = max(abs(o[0] / r[0] - 1) for o, r in zip(ours, losses, strict=True))
    counts = sum(
        int(round(abs(o[i] - r[i]))) for o, r in zip(ours, losses, strict=True) for i in (1, 2, 3)
    )
    rows = []
    for i, (w, bias) in enumerate(zip(weights, biases, strict=True)):
        ours_w, ours_b, half = (net.get(f"{name}{i + 1}") for name in ("weight", "bias", "half"))
        assert (half == ours_w.astype(np.float16)).all(), "fp16 weights are not the masters rounded"
        if not ref.applied:
            assert (ours_w == w).all() and (ours_b == bias).all(), "a skipped step changed weights"
            continue
        errors = [relative(ours_w - w, ref.w[i] - w), relative(ours_b - bias, ref.b[i] - bias)]
        if rule != SGD:
            errors += [
                relative(net.get(f"weight_m{i + 1}"), ref.mw[i]),
                relative(net.get(f"bias_m{i + 1}"), ref.mb[i]),
            ]
        rows.append("/".join(f"{e:.1e}" for e in errors))
    state = [int(net.get(n)[0]) for n in ("applied_steps", "skipped_steps", "clean_steps")]
    right = state == [ref.applied, ref.skipped, ref.clean] and net.get("loss_scale")[0] == ref.scale
    total = np.array(losses, float).sum(0) if not ref.skipped else None
    if total is not None:
        right = right and np.allclose(net.get("accumulated"), total, rtol=1e-3, atol=3)
    print(
        f"{title:34s} steps {steps:3d} applied/skipped {state[0]}/{state[1]} "
        f"scale 2^{np.log2(net.get('loss_scale')[0]):.0f} {'ok' if right else 'WRONG SCALARS'}  "
        f"loss {worst_loss:.1e}  count diff {counts}\n    dw/db/m/mb by layer: {'  '.join(rows)}"
    )
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trace", action="store_true", help="clock readings within one step")
    options = parser.parse_args()
    driver = Driver()
    program = build(WIDTHS, BATCH, rule=ADAMW, uint8=True, trace=int(options.trace))
    print(program[4])
    check(driver, program, ADAMW, 1, title="AdamW")
    check(driver, program, ADAMW, 20, title="AdamW")
    check(driver, program, ADAMW, 2, loss_scale=2.0**60, title="AdamW, every step overflows")
    check(
        driver,
        program,
        ADAMW,
        30,
        loss_scale=2.0**30,
        growth=4,
        title="AdamW, scale falls and grows",
    )
    if not options.quick:
        for rule, name in ((SGD, "SGD"), (MOMENTUM, "momentum"), (NESTEROV, "Nesterov")):
            other = build(WIDTHS, BATCH, rule=rule, uint8=False)
            check(driver, other, rule, 1, lr=0.02, title=f"{name}, fp16 input", uint8=False)
            check(driver, other, rule, 10, lr=0.02, title=f"{name}, fp16 input", uint8=False)

    weights, biases, images, table, labels = problem(1)
    steps = options.steps
    indices = np.random.default_rng(5).integers(0, len(labels), (steps, BATCH))
    lr_table = np.full(steps * 20, 1e-3, np.float32)

    def fresh(**extra):
        return Mlp(
            driver,
            program,
            WIDTHS,
            weights,
            biases,
            images=images,
            labels=labels,
            table=table,
            indices=indices,
            lr_table=lr_table,
            loss_scale=2.0**15,
            **extra,
        )

    hashes = []
    for parts in ((200,), (200,), (200,), (1, 99, 100)):
        net, done = fresh(), 0
        for n in parts:
            net.launch(n, first=done)
            done += n
        net.wait()
        hashes.append(net.sha256())
    losses = net.history(100)[:, 0] / BATCH
    print(
        "hash of the state after 200 steps, three runs and one in three launches:",
        *hashes,
        "equal" if len({*hashes[:3]}) == 1 else "DIFFERENT",
    )
    print("loss, steps 101 to 200:", *(f"{x:.3f}" for x in losses[::20]))

    if options.trace:
        net = fresh(trace=True)
        net.launch(50)
        net.wait()
        trace = net.trace()
        names = {
            0: "vote known",
            1: "y1 sent",
            30: "y1 here",
            31: "F2 multiplied",
            32: "F2 exchanged",
            33: "F2 stored",
            34: "fences",
            35: "sync",
            2: "y2 sent",
            3: "y3 sent",
            53: "y3 here",
            54: "logits",
            55: "softmax",
            56: "dy3",
            16: "head done",
            41: "D3 multiplied",
            42: "D3 exchanged",
            43: "D3 stored",
            44: "fences",
            45: "sync",
            17: "dy2 sent",
            50: "dy2 here",
            51: "D2 stored",
            52: "fences",
            18: "dy1 sent",
            13: "wgrad other",
            14: "proposed",
            15: "dy1 of all",
            20: "wgrad first",
            21: "proposed",
            22: "signalled",
            24: "next vote",
        }
        print("clocks since the vote: all blocks, first blocks of clusters, by cluster")
        for what, name in names.items():
            at = trace[:, what] - trace[:, 0]
            print(
                f"  {name:14s} median {int(np.median(at)):6d}  min {at.min():6d}  "
                f"max {at.max():6d}  rank 0 {int(np.median(at[::16])):6d}  "
                f"{np.median(at.reshape(-1, 16), axis=1).astype(int)}"
            )
    table_rows = []
    for count in (1, 10, 100, steps):
        net = fresh()
        times = [driver.milliseconds(partial(net.launch, count)) * 1000 for _ in range(9)]
        net.wait()
        table_rows.append((count, float(np.median(times[2:])), min(times), max(times[2:])))
    print(f"{'steps/launch':>12s} {'us/launch':>10s} {'us/step':>8s} {'best':>8s} {'worst':>8s}")
    for count, median, best, worst in table_rows:
        print(
            f"{count:12d} {median:10.1f} {median / count:8.2f} {best / count:8.2f} "
            f"{worst / count:8.2f}"
        )


if __name__ == "__main__":
    main()
