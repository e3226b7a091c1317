"""cuDNN: the interface we declare, how it is found, and which engine a convolution gets."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from renaissance.core.errors import NativeError, PlanError
from renaissance.lowering.calls.targets import Convolution, Launch
from renaissance.program import cuda
from renaissance.runtime import cudnn, library
from renaissance.runtime.convolution_choices import Choice, Choices
from renaissance.runtime.kernels import CSRC

SIZES = (2, 9, 9, 16, 8, 5, 5, 3, 3, 2, 1, 1)
CONVOLUTION = Convolution("forward", 1, 1, SIZES, 1 << 20)
PLAN = cudnn.ConvolutionPlan(Launch(7, (0, 0, 0), 0))
FAST, SLOW = Choice(7, ((2, 1),), 0, 10.0), Choice(3, (), 64, 20.0)

on_gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a CUDA device")
needs_library = pytest.mark.skipif(not library.status().loaded, reason=library.status().message)


def header() -> Path | None:
    """cuDNN's own declarations, where its wheel lies."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(f) for f in spec.submodule_search_locations or []] if spec else []
    found = (folder / "cudnn" / "include" / "cudnn_graph.h" for folder in folders)
    return next((path for path in found if path.is_file()), None)


def declared() -> dict[str, int]:
    """The numbers of our declaration, by cuDNN's names."""
    text = (CSRC / "cudnn" / "interface.h").read_text()
    return {name: int(n) for n, name in re.findall(r"= (\d+), *// (CUDNN_\w+)", text)}


def test_every_number_we_declare_names_what_cudnn_calls_it() -> None:
    text = (CSRC / "cudnn" / "interface.h").read_text()
    enums = "".join(re.findall(r"enum \w+ : int \{(.*?)\};", text, re.DOTALL))
    assert len(declared()) == enums.count("=") > 80


@pytest.mark.skipif(header() is None, reason="cuDNN's headers are not installed")
def test_our_numbers_are_those_of_the_headers() -> None:
    path = header()
    assert path is not None
    text = re.sub(
        r"/\*.*?\*/|//[^\n]*|CUDNN_DEPRECATED_ENUM", "", path.read_text(), flags=re.DOTALL
    )
    theirs = dict(re.findall(r"(CUDNN_\w+)\s*=\s*(\d+)", text))
    ours = declared()
    assert {name: int(theirs[name]) for name in ours} == ours


@needs_library
@pytest.mark.skipif(jax.default_backend() == "gpu", reason="cuDNN was opened already")
def test_a_missing_cudnn_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cudnn.PATH_VARIABLE, "/nowhere/libcudnn.so.9")
    cudnn.find.cache_clear()
    with pytest.raises(NativeError, match=r"no cuDNN: /nowhere/libcudnn.*install jax\[cuda13\]"):
        cudnn.find()
    cudnn.find.cache_clear()


class Recorded(cudnn.Convolutions):
    """Convolutions of a device that is not there: it knows which engines would be built."""

    fused: Choice | None = None

    def __init__(self, choices: Choices, broken: frozenset[int] = frozenset()):
        self.measured: list[Convolution] = []
        self.built: list[Choice] = []
        self.broken = broken
        super().__init__(0, "NVIDIA H200", choices)

    def measure(self, convolution: Convolution) -> list[Choice]:
        self.measured.append(convolution)
        if convolution.kind != "forward_statistics":
            return [FAST, SLOW]
        if self.fused is None:
            raise NativeError("no engine")
        return [self.fused]

    def build(self, convolution: Convolution, choice: Choice) -> int:
        if choice.engine in self.broken:
            raise NativeError("this engine cannot")
        self.built.append(choice)
        return choice.engine


@pytest.fixture
def choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Choices:
    monkeypatch.setattr(cudnn, "find", lambda: 91900)
    return Choices(tmp_path / "convolutions.json")


def test_the_fastest_engine_is_measured_once_and_pinned(choices: Choices) -> None:
    first = Recorded(choices)
    assert first.plan(CONVOLUTION) == first.plan(CONVOLUTION) == PLAN
    assert (first.measured, first.built) == ([CONVOLUTION], [FAST])
    later = Recorded(Choices(choices.path))
    later.plan(CONVOLUTION)
    assert (later.measured, later.built) == ([], [FAST])


def test_what_could_not_be_measured_is_not_recorded(
    choices: Choices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorded, "measure", lambda self, convolution: [Choice(9, (), 0, 0.0)])
    assert Recorded(choices).plan(CONVOLUTION).launch.key == 9
    assert Choices(choices.path).get("NVIDIA H200, cuDNN 91900", str(CONVOLUTION)) is None


def test_a_recorded_choice_is_kept_where_another_would_be_faster(choices: Choices) -> None:
    choices.put("NVIDIA H200, cuDNN 91900", str(CONVOLUTION), SLOW)
    found = Recorded(choices)
    assert found.plan(CONVOLUTION).launch.key == 3
    assert found.measured == []


def test_a_recorded_engine_that_cannot_run_is_measured_again(choices: Choices) -> None:
    choices.put("NVIDIA H200, cuDNN 91900", str(CONVOLUTION), SLOW)
    found = Recorded(choices, broken=frozenset({3}))
    assert found.plan(CONVOLUTION).launch.key == 7
    assert choices.get("NVIDIA H200, cuDNN 91900", str(CONVOLUTION)) == FAST


@pytest.mark.parametrize(("microseconds", "summed"), [(None, False), (10.0, True), (99.0, False)])
def test_statistics_are_fused_where_cudnn_can_and_it_is_faster(
    choices: Choices, microseconds: float | None, summed: bool
) -> None:
    wanted = replace(CONVOLUTION, kind="forward_statistics")
    fused = None if microseconds is None else Choice(5, (), 0, microseconds)
    first = Recorded(choices)
    first.fused = fused
    plan = first.plan(wanted)
    assert (plan.summed, plan.launch.key) == (summed, 5 if summed else 7)
    later = Recorded(Choices(choices.path))
    assert later.plan(wanted) == plan
    assert later.measured == []


def test_a_program_on_cuda_without_cudnn_is_told_which_call_lacks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: Any) -> None:
        raise NativeError("no cuDNN: it is gone")

    monkeypatch.setattr(library, "register", lambda platform: None)
    monkeypatch.setattr(cuda, "KernelCompiler", lambda *_: None)
    monkeypatch.setattr(cuda, "Convolutions", none)
    device: Any = SimpleNamespace(
        compute_capability="9.0", local_hardware_id=0, device_kind="NVIDIA H200"
    )
    with pytest.raises(PlanError, match=r"conv7 cannot run on CUDA: no cuDNN.*lowering='xla'"):
        cuda.CudaKernels(device).convolve(CONVOLUTION, "conv7")


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("kind", ["forward", "backward_data", "backward_weight"])
def test_engines_of_a_device_are_measured_and_the_choice_builds_again(
    tmp_path: Path, kind: str
) -> None:
    name = jax.local_devices()[0].device_kind
    found = cudnn.Convolutions(0, name, Choices(tmp_path / "convolutions.json"))
    convolution = Convolution(kind, 1, 1, SIZES, 1 << 20)
    times = [choice.microseconds for choice in found.measure(convolution)]
    assert times == sorted(times) and times[0] > 0
    plan = found.plan(convolution)
    again = cudnn.Convolutions(0, name, Choices(tmp_path / "convolutions.json"))
    assert again.plan(convolution) == plan


@pytest.mark.gpu
@on_gpu
def test_what_no_engine_can_run_is_refused_with_the_convolution(tmp_path: Path) -> None:
    found = cudnn.Convolutions(0, "any", Choices(tmp_path / "convolutions.json"))
    wrong = Convolution("forward", 1, 1, (2, 9, 9, 16, 8, 4, 4, 3, 3, 2, 1, 1), 0)
    with pytest.raises(NativeError, match="forward fp16 2x9x9x16 to 4x4x8.*cuDNN refuses"):
        found.plan(wrong)
