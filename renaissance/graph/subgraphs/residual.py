"""Sub-graphs of the residual add: plain, or with the batch norms and the activation around it."""

from __future__ import annotations

from renaissance.graph.computation_graph import Ref
from renaissance.graph.layer import ArchLayer
from renaissance.graph.subgraphs import norm
from renaissance.graph.subgraphs.activation import STEPS, derivative_role
from renaissance.graph.subgraphs.trace import Roles, Trace
from renaissance.graph.subgraphs.value import Value


def train(
    trace: Trace, end: ArchLayer, shortcut: Value, main: Value, activation: ArchLayer | None = None
) -> Value:
    """y = act(main + shortcut), a pending norm of the main path included."""
    if main.pending is not None:
        return _train_normalised(trace, end, shortcut, main, activation)
    if shortcut.pending is not None:
        shortcut = norm.apply_pending(trace, shortcut)
    last = activation or end
    y = trace.value(last, trace.feature(last), shortcut, main)
    saved = _saved(trace, end, y, activation)
    kind = None if activation is None else activation.kind
    operands: Roles = {"main": main, "shortcut": shortcut}
    trace.emit("add_forward", end, operands, {"y": y, "z": saved.get("z")}, activation=kind)

    def backward() -> None:
        dy = y.gradient
        if dy is None:
            return
        if activation is not None:
            dz = trace.gradient_tensor(f"{end.name}.dy", y.shape)
            operands: Roles = {"dy": dy, **saved}
            trace.emit("activation_backward", activation, operands, {"dx": dz}, activation=kind)
            dy = dz
        trace.contribute(end, main, dy)
        trace.contribute(end, shortcut, dy)

    trace.on_backward(backward, main, shortcut)
    return y


def _saved(
    trace: Trace, end: ArchLayer, y: Value, activation: ArchLayer | None
) -> dict[str, Ref | None]:
    """What the activation's derivative will be computed from."""
    if activation is None:
        return {}
    is_output = derivative_role(activation.kind) == "y"
    return {"y": y.ref} if is_output else {"z": trace.feature(end, "z")}


def _saved_by_norm(
    trace: Trace, end: ArchLayer, y: Value, layer: ArchLayer, activation: ArchLayer | None
) -> dict[str, Ref | None]:
    """As :func:`_saved`; but where the slope is 0 or 1 a bit for a half, a sixteenth to read."""
    is_step = activation is not None and activation.kind in STEPS
    if trace.amp and is_step and y.needs_gradient and norm.channels(layer) % 8 == 0:
        return {"mask": trace.bits(end, "mask")}
    return _saved(trace, end, y, activation)


def _train_normalised(
    trace: Trace, end: ArchLayer, shortcut: Value, main: Value, activation: ArchLayer | None
) -> Value:
    """y = act(norm(main) + shortcut), the shortcut normalised in the same pass where it waits."""
    assert main.pending is not None
    layer, last = main.pending.layer, activation or end
    y = trace.value(last, trace.feature(last), shortcut, main)
    y.needs_gradient |= trace.trains(layer)
    y.takes_addend = True
    kind = None if activation is None else activation.kind
    sources = {"x": main.ref, **main.pending.operands}
    if shortcut.pending is not None:
        y.needs_gradient |= trace.trains(shortcut.pending.layer)
        normed = {f"shortcut_{role}": ref for role, ref in shortcut.pending.operands.items()}
    else:
        normed = {}
    saved = _saved_by_norm(trace, end, y, layer, activation)
    kept = {role: saved.get(role) for role in ("z", "mask")}
    trace.emit(
        "batch_norm_add_forward",
        end,
        {**sources, "shortcut": shortcut, **normed},
        {"y": y, **kept},
        activation=kind,
    )

    def backward() -> None:
        dy = y.gradient
        if dy is None:
            return
        dx, dshortcut = trace.new_gradient(main), None
        outputs: Roles = {"dx": dx, **norm.affine_gradients(trace, layer)}
        columns = 2 * norm.channels(layer)
        inputs: Roles = {"dy": dy, "addend": y.addend, **sources, **saved}
        if shortcut.pending is not None:
            # both norms see the same masked dy: one pass reduces for the two
            inputs |= {"shortcut": shortcut.ref, **normed}
            dshortcut = trace.new_gradient(shortcut)
            gradients = norm.affine_gradients(trace, shortcut.pending.layer)
            outputs |= {
                "dshortcut": dshortcut,
                "dshortcut_gamma": gradients["dgamma"],
                "dshortcut_beta": gradients["dbeta"],
            }
            columns *= 2
        elif activation is None and y.addend is None:
            dshortcut = dy  # the add hands its gradient on as it is
        else:
            dshortcut = outputs["dshortcut"] = trace.new_gradient(shortcut)
        outputs["partial"] = trace.partial(layer, columns, "backward")
        trace.emit("batch_norm_add_backward", end, inputs, outputs, activation=kind)
        trace.contribute(end, main, dx)
        trace.contribute(end, shortcut, dshortcut)

    trace.on_backward(backward, main, shortcut)
    return y


def infer(
    trace: Trace, end: ArchLayer, shortcut: Value, main: Value, activation: ArchLayer | None = None
) -> Value:
    """y = act(main + shortcut); a convolution that was held back takes the shortcut along."""
    last = activation or end
    if main.deferred is not None:
        return norm.infer_after_conv(
            trace, **main.deferred, activation=activation, last=last, shortcut=shortcut
        )
    y = trace.value(last, trace.feature(last), shortcut, main)
    kind = None if activation is None else activation.kind
    trace.emit("add_forward", end, {"main": main, "shortcut": shortcut}, {"y": y}, activation=kind)
    return y
