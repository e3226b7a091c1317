"""The comparison tool: same work for all, agreement before times, failures said in a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import renaissance as rn
from renaissance.compare import Workload, compare, contestant, with_ours
from renaissance.compare.run import Comparison, Result, _check_agreement

TINY = Workload(
    net="lenet", batch=4, height=28, width=28, channels=1, classes=10, amp=False, steps=2, repeats=2
)


def test_contestants_agree_and_are_timed(tmp_path: Path) -> None:
    comparison = compare(TINY, ["xla", "xla-loop"])
    single, loop = comparison.results
    assert not single.failure and not loop.failure
    assert len(single.times) == len(loop.times) == 2
    assert loop.worst[1] < 1e-6
    table = comparison.table()
    assert "lenet, batch 4, 28x28x1, nesterov, fp32, on cpu" in table
    assert len(table.splitlines()) == 4
    comparison.write_csv(tmp_path / "figures.csv")
    rows = (tmp_path / "figures.csv").read_text().splitlines()
    assert [row.split(",")[2] for row in rows] == ["contestant", "xla", "xla-loop"]


@pytest.mark.parametrize(
    ("names", "message"),
    [([], r"contestants is \[\]"), (["xla", "tensorflow"], "contestant is 'tensorflow'")],
)
def test_unknown_contestants_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(TINY, names)


@pytest.mark.parametrize(
    ("names", "on_device", "expected"),
    [
        (["xla", "torch", "xla"], True, ["fused", "xla", "torch"]),
        (["xla", "torch"], False, ["xla", "torch"]),
        (["xla-loop", "fused-loop"], True, ["xla-loop", "fused-loop"]),
    ],
)
def test_on_a_device_our_fused_step_comes_first_unless_it_is_named(
    names: list[str], on_device: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contestant, "has_cuda_device", lambda: on_device)
    assert with_ours(names) == expected


def test_a_contestant_that_disagrees_gets_no_time(tmp_path: Path) -> None:
    results = [Result(name, (1.0,), loss=2.0) for name in ("xla", "fused")]
    np.savez(tmp_path / "xla.npz", w=np.ones(4), b=np.ones(2))
    np.savez(tmp_path / "fused.npz", w=np.ones(4), b=np.array([1.0, 1.1]))
    reference, fused = _check_agreement(TINY, results, tmp_path)
    assert not reference.failure
    assert "gradients differ from those of xla by 4.1e-02" in fused.failure
    other = Result("fused", (1.0,), loss=2.1)
    failure = _check_agreement(TINY, [results[0], other], tmp_path)[1].failure
    assert failure == "its loss is 2.1, that of xla 2"


def test_a_failure_takes_one_line() -> None:
    results = (Result("xla", (2e-3, 1e-3, 3e-3), 1.0), Result("torch", failure="no torch"))
    lines = Comparison(TINY, results).table().splitlines()
    assert lines[2].split()[:4] == ["xla", "2.0000", "100.0%", "2,000"]
    assert lines[3].split(maxsplit=1) == ["torch", "did not run: no torch"]


@pytest.mark.parametrize("net", ["mlp", "lenet", "resnet18", "mobilenet_v2"])
def test_the_torch_net_is_the_same_network(net: str) -> None:
    torch = pytest.importorskip("torch")
    from renaissance.compare.torch_net import TorchNet

    shape = (28, 28, 1) if net in ("mlp", "lenet") else (32, 32, 3)
    program = rn.compile(rn.models.by_name(net, num_classes=7), shape, 2)
    state = program.init(0)
    params, statistics = program.params(state), program.statistics(state)
    images = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    net_there = TorchNet(program.plan, params).eval()
    theirs = net_there(torch.from_numpy(images).permute(0, 3, 1, 2))
    ours = program.apply(params, images, statistics)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-3, atol=1e-4)
