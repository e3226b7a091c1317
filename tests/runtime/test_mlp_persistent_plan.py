"""The persistent MLP kernel's memory plan, decided while the kernel compiles, read on the host."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "renaissance/runtime/csrc/kernels"
COMPILER = shutil.which("c++") or shutil.which("g++")
NETS = [
    ((784, 1024, 512, 256, 10), 200),
    ((784, 1024, 512, 256, 10), 100),
    ((784, 512, 256, 10), 200),
    ((784, 512, 512, 256, 256, 10), 200),
    ((784, 1000, 500, 200, 10), 64),
]

READER = r"""
#define __host__
#define __device__
#define __constant__ const
#define RN_WIDTHS WIDTHS
#define RN_BATCH BATCH
#define RN_GROUP 16
#define RN_CLUSTERS 7
#define RN_INPUT_SLAB 112
#include "mlp_persistent_plan.cuh"
#include <cstdio>
using namespace rn::mlp;
int main() {
  printf("{\"shared\": %d, \"ring\": %d, \"ring_bytes\": %d, ", kSharedBytes, kRing, kRingBytes);
  printf("\"weights\": %d, \"after_input\": %d, \"area_b\": %d, \"copies\": [", kSchedule.weights,
         kAreaA + act_bytes(2), kAreaB);
  for (int i = 0; i < kSchedule.count; ++i) {
    const Copies& c = kSchedule.at[i];
    printf("%s[%d, %d, %d, %d, %d, %d, %d]", i ? ", " : "", c.place, c.bytes, c.pieces, c.source,
           c.source_stride, c.rank_stride, c.after);
  }
  printf("], \"layers\": [");
  for (int l = 1; l <= kLayers; ++l) {
    printf("%s{\"rows\": %d, \"columns\": %d, ", l > 1 ? ", " : "", width(l), width(l - 1));
    printf("\"weight\": %d, \"first\": %d, ", kLayout.weight[l],
           l < kLayers ? kSchedule.forward[l] : kSchedule.head);
    printf("\"dgrad\": %d, \"places\": [", kSchedule.dgrad[l]);
    for (int n = 0; n < width(l); n += 8)
      for (int k = 0; k < width(l - 1); k += 8)
        printf("%s%d", n || k ? ", " : "", weight_place(l, n, k));
    printf("]}");
  }
  printf("]}");
}
"""


def read_plan(folder: pathlib.Path, widths: tuple[int, ...], batch: int) -> dict[str, Any]:
    text = READER.replace("WIDTHS WIDTHS", "WIDTHS " + ",".join(map(str, widths)))
    (folder / "plan.cc").write_text(text.replace("BATCH BATCH", f"BATCH {batch}"))
    assert COMPILER is not None
    command = [COMPILER, "-std=c++17", "-I", str(KERNELS), "plan.cc", "-o", "plan"]
    subprocess.run(command, cwd=folder, check=True)
    return json.loads(
        subprocess.run(["./plan"], cwd=folder, check=True, capture_output=True).stdout
    )


@pytest.fixture(
    scope="module", params=NETS, ids=lambda net: f"{'-'.join(map(str, net[0]))}x{net[1]}"
)
def plan(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    return read_plan(tmp_path_factory.mktemp("plan"), *request.param)


def test_ring_copies_wait_for_whatever_lies_where_they_go(plan: dict[str, Any]) -> None:
    copies = plan["copies"][: plan["weights"]]
    for i, (place, size, pieces, *_, after) in enumerate(copies):
        if after == -2:
            assert plan["after_input"] <= place and place + size * pieces <= plan["area_b"]
            continue
        assert plan["ring"] <= place and place + size * pieces <= plan["ring"] + plan["ring_bytes"]
        overlapping = [
            j
            for j in range(i)
            if copies[j][0] < place + size * pieces
            and place < copies[j][0] + copies[j][1] * copies[j][2]
        ]
        assert max(overlapping, default=-1) == after


def test_every_copy_is_aligned_and_inside_shared_memory(plan: dict[str, Any]) -> None:
    for place, size, pieces, source, stride, rank_stride, _ in plan["copies"]:
        assert all(x % 16 == 0 for x in (place, size, source, stride, rank_stride))
        assert 0 <= place and place + size * pieces <= plan["shared"]


def test_blocks_of_a_cluster_read_each_weight_once(plan: dict[str, Any]) -> None:
    ends = sorted(
        [x["first"] for x in plan["layers"]] + [x["dgrad"] for x in plan["layers"] if x["dgrad"]]
    )
    ends.append(plan["weights"])
    for layer in plan["layers"][:-1]:
        for start in {layer["first"], layer["dgrad"]} - {0} | (
            {0} if layer["first"] == 0 else set()
        ):
            stop = min(e for e in ends if e > start)
            seen: set[int] = set()
            for _, size, pieces, source, stride, rank_stride, _ in plan["copies"][start:stop]:
                for rank in range(16):
                    for p in range(pieces):
                        begin = source + rank * rank_stride + p * stride
                        blocks = set(range(begin, begin + size, 128))
                        assert not blocks & seen
                        seen |= blocks
            size = layer["rows"] * layer["columns"] * 2
            assert seen == set(range(layer["weight"], layer["weight"] + size, 128))


def test_blocks_of_eight_by_eight_fill_the_weight(plan: dict[str, Any]) -> None:
    for layer in plan["layers"]:
        assert sorted(layer["places"]) == list(range(0, layer["rows"] * layer["columns"] * 2, 128))


def test_what_does_not_fit_is_refused_while_compiling(tmp_path: pathlib.Path) -> None:
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    for widths, batch in (
        ((784, 2048, 10, 10), 200),
        ((784, 1024, 512, 256, 10), 512),
        ((784, 256, 256, 17), 8),
    ):
        with pytest.raises(subprocess.CalledProcessError):
            read_plan(tmp_path, widths, batch)
