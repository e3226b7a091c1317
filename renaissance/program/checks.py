"""What a program is given, held against what it was compiled for, before anything is donated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from renaissance.core.errors import fail
from renaissance.data.device_pipeline import Rows
from renaissance.graph.arch_plan import ArchPlan
from renaissance.graph.options import ShapeId
from renaissance.lowering.state import ArrayState

Batch = tuple[Any, Any]


def check_params(plan: ArchPlan, params: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of the plan, in its order; nothing may be missing, left over or misshapen.

    Raises:
        ValueError: names the tensor.
    """
    shapes = {name: spec.shape for name, spec, _ in plan.weights()}
    for name, shape in shapes.items():
        if name not in params:
            fail(ValueError, "params", sorted(params), f"also {name!r}")
        if np.shape(params[name]) != shape:
            fail(ValueError, f"shape of params[{name!r}]", np.shape(params[name]), str(shape))
    extra = sorted(set(params) - set(shapes))
    if extra:
        fail(ValueError, "params", extra, "no tensors beside those of the plan")
    return {name: params[name] for name in shapes}


def check_batch(batch: Batch, shapes: tuple[ShapeId, ...], classes: int) -> Batch:
    """A batch of one of the shapes, with labels in [0, classes) as far as they are on the host.

    Raises:
        ValueError: a shape the program was not compiled for, or a label that is no class.
        TypeError: not a pair, images that are no floats, or labels that are no integers.
    """
    if not isinstance(batch, tuple) or len(batch) != 2:
        fail(TypeError, "batch", type(batch).__name__, "a tuple (images, labels)")
    images, labels = batch
    check_shapes(np.shape(images), np.shape(labels), shapes)
    _check_kind("images", images, "fV", "floats, such as float32: normalised pixels")
    _check_kind("labels", labels, "iu", "integers, such as int32")
    if isinstance(labels, np.ndarray):
        check_labels(labels, classes)
    return batch


def kind_of(batch: Any) -> Any:
    """Types and shapes of a batch; None for what is no pair of arrays."""
    if type(batch) is not tuple or len(batch) != 2:
        return None
    images, labels = batch
    try:
        return type(images), type(labels), images.dtype, labels.dtype, images.shape, labels.shape
    except AttributeError:  # a list: it has none of them
        return None


def check_stacks(images: Any, labels: Any, shapes: tuple[ShapeId, ...]) -> None:
    """Refuse stacked batches that do not belong together or have another shape.

    Raises:
        ValueError: names the shapes.
    """
    if np.ndim(images) != 5 or np.ndim(labels) != 2 or len(images) != len(labels):
        found = (np.shape(images), np.shape(labels))
        fail(ValueError, "shapes of batches", found, "(S, N, H, W, C) and (S, N)")
    check_shapes(np.shape(images)[1:], np.shape(labels)[1:], shapes)


def check_drafts(rows: Rows, ndim: int, shapes: tuple[ShapeId, ...], classes: int) -> None:
    """Refuse rows of a data set whose batches the program was not compiled for.

    Args:
        rows: From which batches are made.
        ndim: Dimensions of the ids: 1 for one batch, 2 for a stack of them.
        shapes: Of the program's batches.
        classes: Of the program.

    Raises:
        ValueError: names what does not fit.
    """
    if np.ndim(rows.ids) != ndim:
        expected = "(N,)" if ndim == 1 else "(S, N)"
        fail(ValueError, "shape of the rows' ids", np.shape(rows.ids), expected)
    check_shapes(rows.batch_shape, rows.batch_shape[:1], shapes)
    found = rows.pipeline.dataset.num_classes
    if found > classes:
        fail(ValueError, f"classes of {rows.pipeline.dataset.name}", found, f"at most {classes}")


def check_shapes(
    images: tuple[int, ...], labels: tuple[int, ...], shapes: tuple[ShapeId, ...]
) -> None:
    """Refuse a batch of a shape that the program was not compiled for.

    Raises:
        ValueError: names the shape, and those there are.
    """
    if images not in shapes:
        wanted = " or ".join(str(tuple(s)) for s in shapes)
        fail(ValueError, "shape of images", images, wanted)
    if labels != images[:1]:
        fail(ValueError, "shape of labels", labels, str(images[:1]))


def name_dead_leaf(state: ArrayState, error: Exception) -> None:
    """Say which leaf was given up, where a call failed because one was.

    Looking at every leaf before every call would cost more than all other checks together.
    """
    if "deleted" in str(error) or "donated" in str(error):
        state.check_alive()


def _check_kind(name: str, array: Any, kinds: str, expected: str) -> None:
    """Refuse an array of another kind of numbers (bfloat16 counts as kind V)."""
    dtype = getattr(array, "dtype", None)
    if dtype is not None and dtype.kind not in kinds:
        fail(TypeError, f"dtype of {name}", dtype.name, expected)


def check_labels(labels: np.ndarray, classes: int) -> None:
    """Refuse labels outside the classes, while they are still on the host.

    Raises:
        ValueError: names the first such row.
    """
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        row = int(wrong[0])
        fail(ValueError, f"label at row {row}", int(labels[row]), f"a class in [0, {classes - 1}]")


def check_rows(images: Any, labels: Any, indices: Any, values: Any) -> None:
    """Refuse a data set and rows of it that do not belong together.

    Raises:
        ValueError: a shape does not fit, or a row on the host is out of range.
        TypeError: bytes without values, or values for images that are not bytes.
    """
    if np.ndim(images) != 4 or np.shape(labels) != np.shape(images)[:1]:
        found = (np.shape(images), np.shape(labels))
        fail(ValueError, "shapes of a data set", found, "(M, H, W, C) and (M,)")
    if np.ndim(indices) != 2:
        fail(ValueError, "shape of indices", np.shape(indices), "(S, N)")
    if isinstance(indices, np.ndarray):
        wrong = indices[(indices < 0) | (indices >= len(labels))]
        if wrong.size:
            fail(ValueError, "row in indices", int(wrong[0]), f"one in [0, {len(labels) - 1}]")
    kind = str(images.dtype)
    if (kind == "uint8") != (values is not None):
        fail(TypeError, f"values for {kind} images", values, "256 of them for uint8 and only there")
    if values is not None and np.shape(values) != (256,):
        fail(ValueError, "shape of values", np.shape(values), "(256,)")
