"""A plan as a YAML document, and back."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from renaissance.core.errors import FormatError, PlanError, ShapeError, fail
from renaissance.core.types import Shape
from renaissance.graph.arch_plan.flat import FlatLayer, ShapeMachine, output_shape
from renaissance.graph.descriptors.head import HEAD
from renaissance.graph.layer import ArchLayer
from renaissance.graph.registry import descriptor_of

if TYPE_CHECKING:
    from renaissance.graph.arch_plan.plan import ArchPlan

FORMAT = "renaissance arch plan 1"

# libyaml's reader and writer are much faster; every common wheel of PyYAML has them.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_PLAIN = (bool, int, float, str, type(None))


# --- writing -------------------------------------------------------------------------------------


def to_yaml(plan: ArchPlan) -> str:
    """The plan as YAML; input shapes are left out, since they follow from the layers before."""
    document = {
        "format": FORMAT,
        "name": plan.name,
        "input": list(plan.input_shape[1:]),
        "stored_channels": plan.stored_channels,
        "num_classes": plan.num_classes,
        "amp": plan.amp,
        "fused": plan.fused,
        "layers": [_row(layer) for layer in plan.layers],
    }
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=100
    )
    return text


def _row(layer: ArchLayer) -> dict[str, Any]:
    row: dict[str, Any] = {"name": layer.name, "kind": layer.kind}
    row["params"] = {f.name: _plain(layer, f.name) for f in fields(layer.params)}
    row["output"] = list(layer.out_shape[1:])
    row["source"] = layer.source_id
    if layer.is_first_layer:
        row["first"] = True
    if layer.parts:
        row["parts"] = [_row(part) for part in layer.parts]
    return row


def _plain(layer: ArchLayer, field: str) -> Any:
    value = getattr(layer.params, field)
    items = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, _PLAIN) for item in items):
        raise TypeError(
            f"{layer.name}.{field} is {value!r}, expected numbers, strings, None or a tuple of "
            "them: nothing else can be written to YAML"
        )
    return list(value) if isinstance(value, tuple) else value


# --- reading -------------------------------------------------------------------------------------


def from_yaml(text: str) -> ArchPlan:
    """The plan of a document that :func:`to_yaml` wrote.

    Raises:
        FormatError: The text is not such a document, or contradicts itself.
    """
    from renaissance.graph.arch_plan.plan import ArchPlan, stored_channels  # a plan writes itself

    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise FormatError(f"the plan is not YAML: {error}") from None
    document = _Record("the plan", content, _PLAN_KEYS)
    if document.get("format", str) != FORMAT:
        document.refuse("format", repr(FORMAT))
    extents = document.get("input", list)
    if len(extents) != 3 or not all(type(extent) is int and extent > 0 for extent in extents):
        document.refuse("input", "[height, width, channels]")
    shape = Shape(1, *extents)
    layers = _layers(document, shape)
    amp = document.get("amp", bool)
    channels = stored_channels(layers, shape, amp)
    if document.get("stored_channels", int) != channels:
        document.refuse("stored_channels", f"{channels}, which follows from its input and amp")
    return ArchPlan(
        layers=layers,
        input_shape=shape,
        num_classes=document.get("num_classes", int),
        amp=amp,
        fused=document.get("fused", bool),
        stored_channels=channels,
        name=document.get("name", str, type(None)),
    )


_PLAN_KEYS = frozenset(
    ("format", "name", "input", "stored_channels", "num_classes", "amp", "fused", "layers")
)
_LAYER_KEYS = frozenset(("name", "kind", "params", "output", "source", "first", "parts"))


class _Record:
    """A mapping of the document; what is missing or wrong in it is named with its place."""

    def __init__(self, where: str, content: Any, known: frozenset[str]) -> None:
        if not isinstance(content, dict):
            fail(FormatError, where, content, "a mapping")
        self.where, self.content = where, content
        for key in content:
            if key not in known:
                fail(FormatError, f"{where}: key", key, f"one of {', '.join(sorted(known))}")

    def get(self, key: str, *types: type) -> Any:
        """The value of a key, of exactly one of the types."""
        if key not in self.content:
            raise FormatError(f"{self.where}: {key} is missing")
        value = self.content[key]
        if type(value) not in types:
            self.refuse(key, " or ".join(kind.__name__ for kind in types))
        return value

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Say that the value of a key is wrong."""
        fail(FormatError, f"{self.where}: {key}", self.content[key], expected)


def _layers(document: _Record, input_shape: Shape) -> tuple[ArchLayer, ...]:
    machine = ShapeMachine(input_shape)
    try:
        layers = tuple(_layer(row, machine) for row in document.get("layers", list))
        machine.finish()
    except (ShapeError, PlanError) as error:
        raise FormatError(f"the plan contradicts itself: {error}") from None
    head = layers[-1].params if layers and layers[-1].kind == HEAD else None
    if head is None or head.num_classes != document.get("num_classes", int):
        raise FormatError(f"the plan ends with {head}, expected a head of its num_classes")
    names = [layer.name for top in layers for layer in (top, *top.parts)]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise FormatError(f"the plan has several layers of the names {repeated}, expected one each")
    return layers


def _layer(content: Any, machine: ShapeMachine) -> ArchLayer:
    """A layer, or a merged one after its parts; both must give the map that the document says."""
    name = content.get("name") if isinstance(content, dict) else None
    row = _Record(f"layer {name!r}", content, _LAYER_KEYS)
    flat = FlatLayer(row.get("kind", str), _params(row), row.get("name", str))
    before = machine.shape
    if "parts" in row.content:
        parts = tuple(_part(part, row, machine) for part in row.get("parts", list))
        output = output_shape(flat, before)
    else:
        parts = ()
        output = machine.step(flat)
    if row.get("output", list) != list(output[1:]) or output != machine.shape:
        row.refuse("output", f"{list(output[1:])}, which follows from its input {before}")
    return ArchLayer(
        kind=flat.kind,
        params=flat.params,
        name=flat.name,
        in_shape=before,
        out_shape=output,
        is_first_layer="first" in row.content and row.get("first", bool),
        source_id=row.get("source", int),
        parts=parts,
    )


def _part(content: Any, whole: _Record, machine: ShapeMachine) -> ArchLayer:
    if isinstance(content, dict) and "parts" in content:
        whole.refuse("parts", "primitive layers without parts of their own")
    return _layer(content, machine)


def _params(row: _Record) -> Any:
    given = row.get("params", dict)
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    try:
        return descriptor_of(row.get("kind", str)).params(**values)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{row.where}: {error}") from None
