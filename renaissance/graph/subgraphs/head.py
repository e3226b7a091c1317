"""Sub-graph of the head: softmax and cross entropy."""

from __future__ import annotations

from renaissance.core.types import DType, Region
from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.memory_plan.requirement import per_row
from renaissance.graph.subgraphs.trace import Roles, Trace
from renaissance.graph.subgraphs.value import Value

LABELS = Ref(Region.I_A_LABEL, "labels")
LOSS_SCALE = Ref(Region.S_SCALAR_FP32, "loss_scale")
RESULT = {name: Ref(Region.R_RESULT, name) for name in ("loss", "top1", "top5", "count")}
"""Sums over the rows of the batch."""

_ROW_COLUMNS = 4


def _rows(trace: Trace, layer: ArchLayer) -> Ref:
    """Loss and hits of every row, before they are summed in a fixed order."""
    suffix = "" if trace.is_training else "_inference"
    return trace.temporary(layer, f"rows{suffix}", per_row(_ROW_COLUMNS))


def train(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """Loss and hits, and the gradient of the scaled mean loss, as one operation."""
    x.consumers += 1
    dlogits = trace.new_gradient(x)
    outputs: Roles = {"dlogits": dlogits, **RESULT, "rows": _rows(trace, layer)}
    inputs: Roles = {"logits": x, "labels": LABELS, "loss_scale": LOSS_SCALE}
    op = "softmax_cross_entropy_forward_backward"
    trace.emit(op, layer, inputs, outputs, num_classes=layer.params.num_classes)
    trace.contribute(layer, x, dlogits)
    return x


def infer(trace: Trace, layer: ArchLayer, x: Value) -> Value:
    """Loss, hits and the predicted class of every row."""
    predicted = trace.tensor(Region.R_PREDICTED_LABEL, "label", DType.INT32, per_row(), trace.scope)
    outputs: Roles = {**RESULT, "predicted": predicted, "rows": _rows(trace, layer)}
    op = "softmax_cross_entropy_forward"
    inputs: Roles = {"logits": x, "labels": LABELS}
    trace.emit(op, layer, inputs, outputs, num_classes=layer.params.num_classes)
    return x
