"""What the published architectures say of every layer, worked out without the package.

The networks are written down here a second time, in the way their reference implementations
(torchvision's) build them: stage tables, loops, one call a layer. Sizes are counted, not computed
with the package's shape rules.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One layer: what it does, the map it leaves, its parameters, its multiply-adds."""

    kind: str
    output: tuple[int, int, int]
    parameters: int = 0
    multiply_adds: int = 0


class Tape:
    """Records layers; ``at`` is the map that the next one reads."""

    def __init__(self, *at: int) -> None:
        self.at = at
        self.rows: list[Row] = []

    def put(self, kind: str, at: tuple[int, ...], parameters: int = 0, work: int = 0) -> None:
        self.at = at
        self.rows.append(Row(kind, at, parameters, work))

    def slide(self, k: int, s: int, p: int) -> tuple[int, int]:
        """Top-left corners a window can take between -p and size + p."""
        height, width, _ = self.at
        return (
            sum(1 for top in range(-p, height + p, s) if top + k <= height + p),
            sum(1 for left in range(-p, width + p, s) if left + k <= width + p),
        )

    def conv(self, out: int, k: int, s: int = 1, p: int = 0) -> None:
        rows, columns = self.slide(k, s, p)
        filters = out * k * k * self.at[2]
        self.put("conv", (rows, columns, out), filters, filters * rows * columns)

    def depthwise(self, k: int, s: int, p: int) -> None:
        rows, columns = self.slide(k, s, p)
        filters = self.at[2] * k * k
        self.put("conv_dw", (rows, columns, self.at[2]), filters, filters * rows * columns)

    def norm(self) -> None:
        self.put("bn2d", self.at, 2 * self.at[2])

    def same(self, kind: str) -> None:
        self.put(kind, self.at)

    def maxpool(self, k: int, s: int, p: int) -> None:
        self.put("maxpool", (*self.slide(k, s, p), self.at[2]))

    def linear(self, out: int) -> None:
        size = self.at[0] * self.at[1] * self.at[2]
        self.put("fc", (1, 1, out), out * size + out, out * size)


def mlp() -> list[Row]:
    tape = Tape(1, 1, 28 * 28)
    for width in (1024, 512, 256):
        tape.linear(width)
        tape.same("relu")
    tape.linear(10)
    return tape.rows


def vgg16_bn(classes: int = 1000, side: int = 224) -> list[Row]:
    tape = Tape(side, side, 3)
    configuration_d = "64 64 M 128 128 M 256 256 256 M 512 512 512 M 512 512 512 M"
    for entry in configuration_d.split():
        if entry == "M":
            tape.maxpool(2, 2, 0)
        else:
            tape.conv(int(entry), 3, 1, 1)
            tape.norm()
            tape.same("relu")
    for _ in range(2):
        tape.linear(4096)
        tape.same("relu")
        tape.same("dropout")
    tape.linear(classes)
    return tape.rows


def resnet(depths: tuple[int, ...], bottleneck: bool, classes: int, side: int) -> list[Row]:
    """ImageNet form for images of 64 pixels and more, CIFAR form below."""
    tape = Tape(side, side, 3)
    if side >= 64:
        tape.conv(64, 7, 2, 3)
        tape.norm()
        tape.same("relu")
        tape.maxpool(3, 2, 1)
    else:
        tape.conv(64, 3, 1, 1)
        tape.norm()
        tape.same("relu")
    for stage, depth in enumerate(depths):
        planes = 64 * 2**stage
        for index in range(depth):
            stride = 2 if stage > 0 and index == 0 else 1
            _resnet_block(tape, planes, stride, bottleneck)
    tape.put("gap", (1, 1, tape.at[2]))
    tape.linear(classes)
    return tape.rows


def _resnet_block(tape: Tape, planes: int, stride: int, bottleneck: bool) -> None:
    out = planes * (4 if bottleneck else 1)
    start = tape.at
    if stride != 1 or start[2] != out:  # the downsampling shortcut
        tape.conv(out, 1, stride)
        tape.norm()
    tape.at = start
    path = [(planes, 3, stride, 1), (planes, 3, 1, 1)]
    if bottleneck:
        path = [(planes, 1, 1, 0), (planes, 3, stride, 1), (out, 1, 1, 0)]
    for index, (width, k, s, p) in enumerate(path):
        tape.conv(width, k, s, p)
        tape.norm()
        if index < len(path) - 1:
            tape.same("relu")
    tape.same("relu")


def resnet18(classes: int = 1000, side: int = 224) -> list[Row]:
    return resnet((2, 2, 2, 2), False, classes, side)


def resnet34(classes: int = 1000, side: int = 224) -> list[Row]:
    return resnet((3, 4, 6, 3), False, classes, side)


def resnet50(classes: int = 1000, side: int = 224) -> list[Row]:
    return resnet((3, 4, 6, 3), True, classes, side)


def mobilenet_v2(classes: int = 1000, side: int = 224) -> list[Row]:
    tape = Tape(side, side, 3)

    def unit(out: int, k: int, s: int = 1, depthwise: bool = False, act: bool = True) -> None:
        if depthwise:
            tape.depthwise(k, s, k // 2)
        else:
            tape.conv(out, k, s, k // 2)
        tape.norm()
        if act:
            tape.same("relu6")

    unit(32, 3, 2)
    settings = "1-16-1-1 6-24-2-2 6-32-3-2 6-64-4-2 6-96-3-1 6-160-3-2 6-320-1-1"
    for setting in settings.split():
        expand, channels, times, first_stride = map(int, setting.split("-"))
        for index in range(times):
            hidden = expand * tape.at[2]
            if expand != 1:
                unit(hidden, 1)
            unit(hidden, 3, first_stride if index == 0 else 1, depthwise=True)
            unit(channels, 1, act=False)
    unit(1280, 1)
    tape.put("gap", (1, 1, tape.at[2]))
    tape.same("dropout")
    tape.linear(classes)
    return tape.rows
