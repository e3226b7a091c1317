"""PyTorch as a contestant: eager, torch.compile, or a captured CUDA graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

import renaissance as rn
from renaissance.algo.optimizer import SGD, Adam, AdamW
from renaissance.compare.contestant import FirstStep
from renaissance.compare.torch_net import TorchNet, from_torch
from renaissance.compare.workload import LEARNING_RATE, OPTIMIZERS, Workload
from renaissance.core.errors import fail

WARM_UP = 3


class TorchContestant:
    """The usual training step: autocast, a gradient scaler, channels last, a fused optimizer."""

    steps_per_call = 1

    def __init__(self, workload: Workload, mode: str):
        self.workload, self.mode = workload, mode
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if mode == "graph" and self.device.type != "cuda":
            fail(ValueError, "mode", "torch-graph", "a CUDA device for a captured graph")
        torch.backends.cudnn.benchmark = True
        program = rn.compile(workload.blueprint(), **workload.compile_options(), lowering="xla")
        self.names = [name for name, _, _ in program.plan.weights()]
        self.decays = {name: spec.group.decays for name, spec, _ in program.plan.weights()}
        weights = program.params(program.init(workload.seed))
        net = TorchNet(program.plan, weights).to(self.device)
        self.net = net.to(memory_format=torch.channels_last)
        self.optimizer = self._optimizer()
        # a scale that cannot overflow here; growing and halving are not what is measured
        self.scaler = torch.amp.GradScaler(self.device.type, 2.0**10, enabled=workload.amp)
        self.images, self.labels = self._batch()
        self.step: Any = self._step

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self.workload.batch_of(0)
        x = torch.from_numpy(images).permute(0, 3, 1, 2).to(self.device)
        y = torch.from_numpy(labels).long().to(self.device)
        return x.contiguous(memory_format=torch.channels_last), y

    def _optimizer(self) -> torch.optim.Optimizer:
        rule = OPTIMIZERS[self.workload.optimizer]
        groups = [
            {
                "params": [self.net.tensor(n) for n in self.names if self.decays[n] is decays],
                "weight_decay": getattr(rule, "weight_decay", 0.0) if decays else 0.0,
            }
            for decays in (True, False)
        ]
        fused = {"fused": True} if self.device.type == "cuda" else {}
        if isinstance(rule, SGD):
            return torch.optim.SGD(
                groups, LEARNING_RATE, momentum=rule.momentum, nesterov=rule.nesterov, **fused
            )
        if isinstance(rule, (Adam, AdamW)):
            kind = torch.optim.Adam if isinstance(rule, Adam) else torch.optim.AdamW
            capturable = {"capturable": self.mode == "graph"}
            betas = (rule.beta1, rule.beta2)
            return kind(groups, LEARNING_RATE, betas=betas, eps=rule.eps, **fused, **capturable)
        fail(ValueError, "optimizer", self.workload.optimizer, "one that PyTorch has (not lars)")

    def _step(self) -> torch.Tensor:
        with torch.autocast(self.device.type, torch.float16, enabled=self.workload.amp):
            loss = F.cross_entropy(self.net(self.images), self.labels)
        self.optimizer.zero_grad(set_to_none=self.mode != "graph")
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def first_step(self) -> FirstStep:
        """One eager step; then compile or capture."""
        loss = float(self._step().detach())
        key = "momentum_buffer" if "momentum" in self.optimizer.param_groups[0] else "exp_avg"
        moments = {
            name: from_torch(name, self.optimizer.state[self.net.tensor(name)][key])
            for name in self.names
        }
        self._prepare()
        return FirstStep(loss, moments)

    def _prepare(self) -> None:
        if self.mode == "compile":
            self.net = torch.compile(self.net)  # type: ignore[assignment]
        if self.mode == "graph":
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._captured_step()
            self.step = graph.replay

    def _captured_step(self) -> None:
        """As :meth:`_step`; the fused optimizer reads the overflow flag on the device."""
        with torch.autocast("cuda", torch.float16, enabled=self.workload.amp):
            loss = F.cross_entropy(self.net(self.images), self.labels)
        self.optimizer.zero_grad(set_to_none=False)
        (loss * 2.0**10).backward()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters]
        found = torch.zeros((), device="cuda")
        scale = torch.full((), 2.0**-10, device="cuda")
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale)
        self.optimizer.grad_scale, self.optimizer.found_inf = None, found  # type: ignore
        self.optimizer.step()

    def run(self, steps: int) -> None:
        """Steps, then wait for the device."""
        for _ in range(steps):
            self.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def memory(self) -> dict[str, int]:
        """Peak of PyTorch's allocator."""
        if self.device.type != "cuda":
            return {}
        return {"peak": int(torch.cuda.max_memory_allocated())}
