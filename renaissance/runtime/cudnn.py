"""cuDNN, whose convolutions run on planned memory: found, opened, its engines measured and pinned.

Plans are built while a program is compiled (``csrc/cudnn``); the custom call looks its plan up by
key and only enqueues. Which engine a convolution gets is measured once and recorded
(:mod:`renaissance.runtime.convolution_choices`).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from renaissance.core.errors import NativeError
from renaissance.lowering.calls.targets import Convolution, Launch
from renaissance.runtime import library
from renaissance.runtime.compile_cache import key_of
from renaissance.runtime.convolution_choices import Choice, Choices

PATH_VARIABLE = "RENAISSANCE_CUDNN"
CANDIDATES = 16
"""Engines that are measured, in the order cuDNN's heuristics prefer them."""
REPEATS = 5
BYTES_PER_MICROSECOND = 4e6
"""What a pass over memory reads at best (H200): a slower device only gains more from fusing it."""
SEPARATE = Choice(-1, (), 0, 0.0)
"""Recorded where statistics are not fused into a convolution."""
_NAME = re.compile(r"libcudnn\.so\.9")
_TEXT_BYTES = 8192


def candidates() -> list[Path]:
    """cuDNN libraries of installed wheels."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return sorted(
        path
        for folder in folders
        for path in Path(folder).glob("cudnn/lib/libcudnn.so.*")
        if _NAME.fullmatch(path.name)
    )


@functools.cache
def find() -> int:
    """Open cuDNN: ``RENAISSANCE_CUDNN`` if set, else the wheel's, else the system's.

    Returns:
        Its version, 91900 for 9.19.0.

    Raises:
        NativeError: there is none, or it is older than 9.0; the message says how to get it.
    """
    native = library.load()
    chosen = os.environ.get(PATH_VARIABLE)
    names = [chosen] if chosen else [*map(str, candidates()), "libcudnn.so.9"]
    problems = []
    for name in names:
        message = ctypes.create_string_buffer(512)
        version = native.rn_cudnn_open(name.encode(), message, ctypes.c_int(len(message)))
        if version > 0:
            return int(version)
        problems.append(message.value.decode(errors="replace"))
    raise NativeError(
        f"no cuDNN: {problems[0]}; install jax[cuda13] or jax[cuda12], or set {PATH_VARIABLE} to "
        "a libcudnn.so.9"
    )


@dataclass(frozen=True, slots=True)
class ConvolutionPlan:
    """How a convolution runs on a device.

    Attributes:
        launch: What the custom call launches first.
        summed: Whether it leaves sums of its output and of its squares for batch statistics.
    """

    launch: Launch
    summed: bool = False


class Convolutions:
    """Gives convolutions their plans on one device.

    Args:
        device: The device's ordinal in this process.
        device_name: What choices are recorded for, such as ``"NVIDIA H200"``.
        choices: Where choices are recorded; default the user's file.

    Raises:
        NativeError: there is no cuDNN, or it is too old.
    """

    def __init__(self, device: int, device_name: str, choices: Choices | None = None):
        self.device = device
        self.version = find()
        self.group = f"{device_name}, cuDNN {self.version}"
        self.choices = Choices() if choices is None else choices
        self._built: dict[Convolution, ConvolutionPlan] = {}
        self._locks: dict[Convolution, threading.Lock] = {}
        self._measured: dict[Convolution, list[Choice]] = {}

    def plan(self, convolution: Convolution) -> ConvolutionPlan:
        """The plan of a convolution, built; chosen by measurement the first time.

        One with statistics is fused with them where cuDNN can and it is the faster way.

        Raises:
            NativeError: cuDNN has no deterministic engine for it that fits the workspace.
        """
        with self._locks.setdefault(convolution, threading.Lock()):
            if convolution not in self._built:
                is_fused = convolution.kind == "forward_statistics"
                make = self._with_statistics if is_fused else self._plain
                self._built[convolution] = make(convolution)
            return self._built[convolution]

    def measure(self, convolution: Convolution) -> list[Choice]:
        """Engines that run a convolution within its workspace, the fastest first; tried only once.

        Where device memory is too short to try them it is the one that cuDNN prefers, with a time
        of 0; such a choice is not recorded.

        Raises:
            NativeError: there is none.
        """
        if convolution in self._measured:
            return self._measured[convolution]
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        failed = library.load().rn_conv_plan_measure(
            ctypes.c_int(self.device),
            numbers(convolution),
            ctypes.c_int(CANDIDATES),
            ctypes.c_int(REPEATS),
            text,
            ctypes.c_int(len(text)),
        )
        if failed:
            raise NativeError(f"{convolution}: {text.value.decode(errors='replace')}")
        found = [Choice.of_line(line) for line in text.value.decode().splitlines()]
        if found[0].microseconds > 0:
            self._measured[convolution] = found
        return found

    def build(self, convolution: Convolution, choice: Choice) -> int:
        """Build the plan of a choice, run it once on scratch memory, keep it.

        Returns:
            The key that the custom call finds it by.

        Raises:
            NativeError: the engine cannot run this convolution.
        """
        named = key_of(str(self.version), str(convolution), str(choice.engine), str(choice.knobs))
        key = int.from_bytes(bytes.fromhex(named[:16]), "little", signed=True)
        flat = [number for pair in choice.knobs for number in pair]
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        failed = library.load().rn_conv_plan_build(
            ctypes.c_int64(key),
            ctypes.c_int(self.device),
            numbers(convolution),
            ctypes.c_int64(choice.engine),
            (ctypes.c_int64 * len(flat))(*flat),
            ctypes.c_int(len(choice.knobs)),
            text,
            ctypes.c_int(len(text)),
        )
        if failed:
            raise NativeError(f"{convolution}: {text.value.decode(errors='replace')}")
        return key

    def _plain(self, convolution: Convolution) -> ConvolutionPlan:
        key = self._pinned(convolution)
        if key is None:
            fastest = self.measure(convolution)[0]
            key = self.build(convolution, fastest)
            self._record(convolution, fastest)
        return ConvolutionPlan(_launch(key))

    def _with_statistics(self, convolution: Convolution) -> ConvolutionPlan:
        plain = replace(convolution, kind="forward")
        pinned = self.choices.get(self.group, str(convolution))
        if pinned == SEPARATE:
            return self.plan(plain)
        key = self._pinned(convolution)
        if key is not None:
            return ConvolutionPlan(_launch(key), summed=True)
        fused = self._fastest_if_any(convolution)
        if fused is None or fused.microseconds > self._separate_microseconds(plain):
            self._record(convolution, SEPARATE)
            return self.plan(plain)
        key = self.build(convolution, fused)
        self._record(convolution, fused)
        return ConvolutionPlan(_launch(key), summed=True)

    def _record(self, convolution: Convolution, choice: Choice) -> None:
        if choice.microseconds > 0 or choice == SEPARATE:
            self.choices.put(self.group, str(convolution), choice)

    def _pinned(self, convolution: Convolution) -> int | None:
        pinned = self.choices.get(self.group, str(convolution))
        if pinned is None:
            return None
        try:
            return self.build(convolution, pinned)
        except NativeError:  # a file from elsewhere may name what this device cannot run
            return None

    def _fastest_if_any(self, convolution: Convolution) -> Choice | None:
        try:
            return self.measure(convolution)[0]
        except NativeError:  # cuDNN knows the pattern for some shapes only
            return None

    def _separate_microseconds(self, plain: Convolution) -> float:
        """What the convolution and a pass over its output take one after the other, at least."""
        n, _, _, _, k, p, q, *_ = plain.sizes
        pass_bytes = n * p * q * k * (2 if plain.y_type else 4)
        return self.measure(plain)[0].microseconds + pass_bytes / BYTES_PER_MICROSECOND


def _launch(key: int) -> Launch:
    """A library's plan is launched by its key alone."""
    return Launch(key, (0, 0, 0), 0)


def numbers(convolution: Convolution) -> ctypes.Array[ctypes.c_int64]:
    """A convolution as ``csrc/cudnn/graph.h`` reads it."""
    values = convolution.numbers
    return (ctypes.c_int64 * len(values))(*values)
