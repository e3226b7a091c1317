"""Which lowering ``"auto"`` takes on a CUDA device, with and without cuDNN; no GPU is needed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import jax
import pytest

import renaissance as rn
from renaissance.core.errors import PlanError
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.program.cuda import CudaKernels
from renaissance.runtime import library

if not library.status().custom_calls:
    pytest.skip(library.status().message, allow_module_level=True)

CAUSE = "rn_conv_forward of conv1 cannot run on CUDA: cuDNN was not found"


class Device(CudaKernels):
    """A device whose kernels compile; it has cuDNN or not."""

    def __init__(self, has_cudnn: bool):
        self.has_cudnn = has_cudnn

    def prepare(self, calls: Iterable[InPlaceCall]) -> None:
        """Refuse convolutions where there is no cuDNN."""
        if not self.has_cudnn and any(c.target.name.startswith("rn_conv_") for c in calls):
            raise PlanError(CAUSE)


def compiled(lowering: str, **options: Any) -> rn.Program:
    net = rn.seq(rn.conv(4, 3), rn.bn(), rn.relu(), rn.gap(), rn.fc(3))
    return rn.compile(net, (6, 6, 3), 4, lowering=lowering, **options)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    device = Device(has_cudnn=request.param)
    monkeypatch.setattr("renaissance.program.fused.launches_for", lambda _: device)


@pytest.mark.parametrize("gpu", [True], indirect=True)
def test_a_convolutional_network_is_fused_under_amp(gpu: None) -> None:
    assert compiled("auto", amp=True).backend.name == "fused"
    assert compiled("auto").backend.name == "xla"


@pytest.mark.parametrize("gpu", [False], indirect=True)
def test_without_cudnn_it_is_xla_and_one_sentence_says_why(
    gpu: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "renaissance"):
        assert compiled("auto", amp=True).backend.name == "xla"
    (record,) = caplog.records
    assert CAUSE in record.getMessage()
    caplog.clear()
    assert compiled("auto").backend.name == "xla"
    assert not caplog.records, "in fp32 XLA is the choice, not the way out"
    with pytest.raises(PlanError, match=CAUSE):
        compiled("fused", amp=True)
