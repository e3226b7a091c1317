"""Random networks for property tests: a tree, and an input it can take.

Shapes are followed by the few lines of arithmetic here, not by the package.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st

from renaissance.graph.blueprint import (
    MB_E1_K3,
    MB_E6_K3_DS,
    RESNET_1_3_1,
    RESNET_1_3_1_DS,
    RESNET_3_3,
    RESNET_3_3_DS,
    Layer,
    add2,
    avgpool,
    block,
    bn,
    cbr,
    cbrp,
    channel_padding,
    conv,
    conv_dw,
    dropout,
    elu,
    fc,
    flatten,
    gap,
    gap_fc,
    group_conv,
    hardswish,
    identity,
    leaky_relu,
    maxpool,
    mbconv,
    relu,
    relu6,
    repeat,
    seq,
    sigmoid,
    silu,
    tanh_act,
)

Map = tuple[int, int, int]  # height, width, channels
Draw = Callable[[st.SearchStrategy], object]

# Examples take milliseconds, but a machine under load may pause in any of them.
unhurried = settings(max_examples=60, deadline=None)

ACTIVATIONS = (relu, relu6, leaky_relu, silu, hardswish, elu, sigmoid, tanh_act)


def after_window(extent: int, k: int, s: int, p: int) -> int:
    """Positions a window can take, counted."""
    return len(range(0, extent + 2 * p - k + 1, s))


@st.composite
def networks(draw, max_layers: int = 6) -> tuple[Layer, Map]:
    """A valid network that ends in a vector of class scores, and its input map."""
    size = draw(st.integers(6, 14)), draw(st.integers(6, 14)), draw(st.sampled_from((1, 3, 4, 6)))
    layers, at = [], size
    for _ in range(draw(st.integers(0, max_layers))):
        layer, at = draw(map_layers(at, depth=2))
        layers.append(layer)
    layers += draw(tails())
    return seq(*layers), size


@st.composite
def tails(draw) -> list[Layer]:
    """From a map to class scores: by average, by flattening, with or without hidden layers."""
    classes = draw(st.integers(1, 12))
    start = draw(st.sampled_from(("gap_fc", "gap", "flatten", "implicit")))
    if start == "gap_fc":
        return [gap_fc(classes, draw(st.booleans()))]
    layers = {"gap": [gap()], "flatten": [flatten()], "implicit": []}[start]
    for width in draw(st.lists(st.integers(1, 9), max_size=2)):
        layers += [fc(width), *draw(st.sampled_from(([], [bn(), relu()], [dropout(0.5)])))]
    return [*layers, fc(classes, draw(st.booleans()))]


@st.composite
def map_layers(draw, at: Map, depth: int) -> tuple[Layer, Map]:
    """One layer or composition that takes a map, and the map it leaves."""
    choices = [_window, _same, _units]
    if depth:
        choices += [_sequence, _residual, _repeat]
    return draw(st.sampled_from(choices))(draw, at, depth)


def _window(draw: Draw, at: Map, depth: int) -> tuple[Layer, Map]:
    h, w, c = at
    k = draw(st.integers(1, min(3, h, w)))
    s, p = draw(st.integers(1, 2)), draw(st.integers(0, k // 2))
    out = draw(st.sampled_from((1, 2, 6, 8)))
    groups = draw(st.sampled_from([g for g in (1, 2, 3) if c % g == 0]))
    layer, channels = draw(
        st.sampled_from(
            (
                (conv(out, k, s, p), out),
                (conv_dw(k, s, p), c),
                (group_conv(groups * out, groups, k, s, p), groups * out),
                (maxpool(k, s, p), c),
                (avgpool(k, s, p), c),
                (cbr(out, k, s, p, 0.2, 1e-3), out),
            )
        )
    )
    return layer, (after_window(h, k, s, p), after_window(w, k, s, p), channels)


def _same(draw: Draw, at: Map, depth: int) -> tuple[Layer, Map]:
    h, w, c = at
    simple = [bn(), bn(0.3, 1e-4), dropout(0.25), identity(), *(make() for make in ACTIVATIONS)]
    layer = draw(st.sampled_from([*simple, channel_padding()]))
    return layer, (h, w, c + -c % 8 if layer == channel_padding() else c)


def _units(draw: Draw, at: Map, depth: int) -> tuple[Layer, Map]:
    h, w, c = at
    half = (h + 1) // 2, (w + 1) // 2
    out = draw(st.sampled_from((2, 4, c)))
    return draw(
        st.sampled_from(
            (
                (block(2, out, RESNET_1_3_1), (h, w, out)),
                (block(2, out, RESNET_1_3_1_DS), (*half, out)),
                (block(out, RESNET_3_3), (h, w, out)),
                (block(out, RESNET_3_3_DS), (*half, out)),
                (block(out, MB_E1_K3), (h, w, out)),
                (block(out, MB_E6_K3_DS), (*half, out)),
                (mbconv(6, out, 1), (h, w, out)),
                (cbrp(out, 3, 1, 1, 3, 2, 1), (*half, out)),
            )
        )
    )


def _sequence(draw: Draw, at: Map, depth: int) -> tuple[Layer, Map]:
    layers = []
    for _ in range(draw(st.integers(1, 3))):
        layer, at = draw(map_layers(at, depth - 1))
        layers.append(layer)
    return seq(*layers), at


def _residual(draw: Draw, at: Map, depth: int) -> tuple[Layer, Map]:
    main, after = draw(map_layers(at, depth - 1))
    h, w, c = after
    if after == at and draw(st.booleans()):
        return add2(identity(), main), after
    if (h, w) == at[:2]:
        return add2(seq(conv(c, 1), bn()), main), after
    return add2(main, main), after


def _repeat(draw: Draw, at: Map, depth: int) -> tuple[Layer, Map]:
    times = draw(st.integers(1, 3))
    body, after = draw(st.sampled_from((_units, _same)))(draw, at, depth)
    is_block = body.kind in ("block", "mbconv")
    return repeat(body, times if is_block or body.kind == "bn" else 1), after
