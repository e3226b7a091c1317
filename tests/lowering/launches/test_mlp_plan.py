"""The Python side of the persistent MLP kernel's plan against the kernel's own, on the host."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import pytest

from renaissance.lowering.launches.mlp_plan import CLUSTERS, GROUP, SHARED_BYTES, MlpPlan

KERNELS = pathlib.Path(__file__).resolve().parents[3] / "renaissance/runtime/csrc/kernels"
COMPILER = shutil.which("c++") or shutil.which("g++")
FITTING = [
    ((784, 1024, 512, 256, 10), 200),
    ((784, 512, 256, 10), 200),
    ((200, 256, 256, 250, 200, 7), 20),
    ((2048, 256, 256, 256, 10), 64),
    ((784, *(256,) * 7, 10), 200),
    ((784, 768, 512, 256, 10), 200),
]
READER = """
#define __host__
#define __device__
#define __constant__ const
#include "mlp_persistent_plan.cuh"
#include <cstdio>
using namespace rn::mlp;
int main() {
  printf("[%d, %d, %d, %d]", kLayout.total, kRingBytes, kSharedBytes, kSchedule.count);
}
"""


def read(folder: pathlib.Path, plan: MlpPlan) -> list[int]:
    """The kernel's numbers; its static assertions fail as a compiler's error."""
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    constants = {"WIDTHS": ",".join(map(str, plan.widths)), "BATCH": plan.batch}
    constants |= {"GROUP": GROUP, "CLUSTERS": CLUSTERS, "INPUT_SLAB": plan.input_slab}
    (folder / "plan.cc").write_text(READER)
    macros = [f"-DRN_{name}={value}" for name, value in constants.items()]
    command = [COMPILER, "-std=c++17", *macros, "-I", str(KERNELS), "plan.cc", "-o", "plan"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return json.loads(subprocess.run(["./plan"], cwd=folder, capture_output=True).stdout)


@pytest.mark.parametrize(("widths", "batch"), FITTING)
def test_both_sides_plan_alike(widths: tuple[int, ...], batch: int, tmp_path: pathlib.Path) -> None:
    plan = MlpPlan(widths, batch)
    assert plan.problems() == []
    numbers = [plan.work_bytes, plan.ring_bytes, SHARED_BYTES, plan._copies]
    assert read(tmp_path, plan) == numbers


@pytest.mark.parametrize(
    ("widths", "batch", "reason"),
    [
        ((784, 10, 10), 200, "2 layers"),
        ((784, *(256,) * 8, 10), 200, "9 layers"),
        ((784, 512, 256, 17), 200, "17 classes"),
        ((784, 2048, 256, 10), 200, "hidden widths"),
        ((786, 512, 256, 10), 200, "input width 786"),
        ((784, 512, 256, 10), 225, "batch of 225"),
        ((3072, 1024, 256, 10), 100, "first layer of"),
        ((784, 1024, 1024, 1024, 10), 100, "at most 112 tiles"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(
    widths: tuple[int, ...], batch: int, reason: str, tmp_path: pathlib.Path
) -> None:
    plan = MlpPlan(widths, batch)
    assert reason in "; ".join(plan.problems())
    if reason not in ("input width 786", "9 layers"):  # not asserted in the kernel's plan
        with pytest.raises(subprocess.CalledProcessError):
            read(tmp_path, plan)
