"""From a node of the computation graph to calls on banks: batch norm and the affine it becomes."""

from __future__ import annotations

from typing import Any

from renaissance.graph.computation_graph.node import ComputeNode
from renaissance.lowering.calls import targets
from renaissance.lowering.calls.in_place import InPlaceCall
from renaissance.lowering.calls.scene import Scene
from renaissance.lowering.fused.operands import (
    NORM,
    Calls,
    Lowering,
    activation_of,
    at,
    rows_of,
    type_of,
)
from renaissance.lowering.fused.pools import argmax_bytes, pool_sizes
from renaissance.lowering.launches.packs import RESIDENT_BLOCKS, pack_width, tile_of

PARTIAL_ROWS = 512
"""Rows a plan reserves for the partial sums of a reduction."""
PARTIAL_SUMS = PARTIAL_ROWS * 256
"""Partial sums of one kind that a reduction leaves, at most: they fill the device."""
ROWS_OF_A_BLOCK = 32
"""Pixels at least that one block of a reduction reads."""
_SHORTCUT_NORM = tuple(f"shortcut_{role}" for role in NORM)
_NO_POOL = dict.fromkeys(("n", "h", "w", "p", "q", "kernel", "stride", "pad"), 0)


def partial_rows(rows: int, channels: int, half: int = 1, *, pooled: bool = False) -> int:
    """Partial sums that a reduction over pixels is split into: fewer for a map of many channels.

    Args:
        rows: Pixels of the map.
        channels: Its channels.
        half: 1 for fp16, 0 for fp32.
        pooled: Whether a max-pool lies behind the norm: its blocks' work differs, so there are more
            of them than run at once. All others begin together and end together.
    """
    tiles = tile_of(channels // pack_width(channels, half))[1]
    enough = PARTIAL_SUMS // channels if pooled else RESIDENT_BLOCKS // tiles
    return max(1, min(PARTIAL_ROWS, enough, -(-rows // ROWS_OF_A_BLOCK)))


def statistics(scene: Scene, node: ComputeNode, x: str) -> Calls:
    """Mean and inverse standard deviation of a batch, and what runs on from them."""
    sizes: dict[str, Any] = rows_of(scene, node, x, "mean")
    sizes["type"] = type_of(scene, node, x)
    sizes["partial_rows"] = partial_rows(sizes["rows"], sizes["c"], sizes["type"])
    constants = {name: float(node.params[name]) for name in ("momentum", "eps")}
    results = ("mean", "inverse_std", "next_mean", "next_var", "partial")
    operands = at(scene, node, x, "prev_mean", "prev_var", *results)
    target = targets.BATCH_NORM_STATISTICS
    return [InPlaceCall(target, operands, {**sizes, **constants}, node.layer)]


def _apply(scene: Scene, node: ComputeNode) -> Calls:
    roles = ("x", *NORM, "shortcut", *_SHORTCUT_NORM, "y", "z", "mask")
    sizes = {**rows_of(scene, node, "x", "gamma"), "activation": activation_of(node)}
    sizes["type"] = type_of(scene, node, "x", "shortcut", "y", "z")
    return [InPlaceCall(targets.BATCH_NORM_APPLY, at(scene, node, *roles), sizes, node.layer)]


def _batch_norm_forward(scene: Scene, node: ComputeNode) -> Calls:
    return [*statistics(scene, node, "x"), *_apply(scene, node)]


def _batch_norm_backward(scene: Scene, node: ComputeNode) -> Calls:
    gate = scene.at(node, "z") or scene.at(node, "y")
    results = ("dx", "dgamma", "dbeta", "dshortcut", "dshortcut_gamma", "dshortcut_beta")
    operands = (
        *at(scene, node, "dy"),
        gate,
        *at(scene, node, "argmax", "x", *NORM, "shortcut", *_SHORTCUT_NORM),
        *at(scene, node, *results, "partial", "addend", "mask"),
    )
    sizes: dict[str, Any] = {**_NO_POOL, **rows_of(scene, node, "x", "gamma"), "argmax_bytes": 0}
    if node.op == "batch_norm_max_pool_backward":
        sizes |= {**pool_sizes(scene, node, "x", "dy"), "argmax_bytes": argmax_bytes(scene, node)}
    maps = ("dy", "addend", "x", "y", "z", "shortcut", "dx", "dshortcut")
    number = type_of(scene, node, *maps)
    sizes |= {"type": number, "activation": activation_of(node)}
    pooled = bool(sizes["kernel"])
    sizes["partial_rows"] = partial_rows(sizes["rows"], sizes["c"], number, pooled=pooled)
    return [InPlaceCall(targets.BATCH_NORM_BACKWARD, operands, sizes, node.layer)]


def _batch_norm_fold(scene: Scene, node: ComputeNode) -> Calls:
    operands = at(scene, node, "gamma", "beta", "mean", "var", "scale", "bias")
    sizes = {"c": scene.tensor(node, "gamma").size, "eps": float(node.params["eps"])}
    return [InPlaceCall(targets.BATCH_NORM_FOLD, operands, sizes, node.layer)]


def _affine_forward(scene: Scene, node: ComputeNode) -> Calls:
    operands = at(scene, node, "x", "scale", "bias", "shortcut", "y")
    sizes = {**rows_of(scene, node, "x", "scale"), "activation": activation_of(node)}
    sizes["type"] = type_of(scene, node, "x", "y")
    return [InPlaceCall(targets.AFFINE_FORWARD, operands, sizes, node.layer)]


LOWERINGS: dict[str, Lowering] = {
    "batch_norm_forward": _batch_norm_forward,
    "batch_norm_apply": _apply,
    "batch_norm_add_forward": _apply,
    "batch_norm_backward": _batch_norm_backward,
    "batch_norm_add_backward": _batch_norm_backward,
    "batch_norm_max_pool_backward": _batch_norm_backward,
    "batch_norm_fold": _batch_norm_fold,
    "affine_forward": _affine_forward,
}
"""How every norm becomes calls on banks."""
