"""Where tensors lie: from names in the computation graph to places in banks."""

from __future__ import annotations

from dataclasses import dataclass

from renaissance.algo.clip import ClipByValue
from renaissance.core.types import DType
from renaissance.graph.computation_graph.node import Node, RangeNode
from renaissance.graph.computation_graph.operands import Ref, RegionRun
from renaissance.graph.memory_plan import DTensor, MemoryPlan
from renaissance.lowering.calls.in_place import Argument, Location
from renaissance.lowering.recipe import Recipe

IMAGES, LABELS, BATCH = Argument("images"), Argument("labels"), Argument("batch")
"""What a step is given from outside: stacked batches, and which of them is its own."""
TABLE = Argument("table", written=True)
"""What a step reports, a row for each batch."""


@dataclass(frozen=True)
class Scene:
    """What every lowering looks things up in.

    Attributes:
        memory: Places and shapes of the variant's tensors.
        recipe: Constants of the algorithms.
        image_dtype: Type of the images that come from outside.
    """

    memory: MemoryPlan
    recipe: Recipe
    image_dtype: DType = DType.FP32

    def tensor(self, node: Node, role: str) -> DTensor:
        """The planned tensor in a role."""
        ref = node.inputs[role] if role in node.inputs else node.outputs[role]
        return self.memory.tensor(ref)

    def at(self, node: Node, role: str) -> Location | None:
        """Where the tensor in a role lies; None if the node has none."""
        ref = node.inputs.get(role) or node.outputs.get(role)
        return None if ref is None else self.place(ref)

    def place(self, ref: Ref) -> Location:
        """Where a tensor lies."""
        t = self.memory.tensor(ref)
        return Location(t.bank, t.offset, t.nbytes, f"{t.region.name} {t.name}")

    def run(self, node: RangeNode, role: str) -> Location | None:
        """The bytes of a run of regions; None if the node has none in that role."""
        run = node.read.get(role) or node.written.get(role)
        return None if run is None else self.span(run)

    def span(self, run: RegionRun) -> Location:
        """The bytes of a run of regions."""
        offset, nbytes = self.memory.span(run)
        return Location(run.bank, offset, nbytes, str(run))

    def layer_index(self, name: str) -> int:
        """Position of a primitive layer in the network, the layer number of its random numbers."""
        return [layer.name for layer in self.recipe.plan.primitives()].index(name)

    @property
    def max_abs(self) -> float:
        """The bound every gradient is clamped to by itself, 0 for none."""
        clip = self.recipe.clip
        return float(clip.max_abs) if isinstance(clip, ClipByValue) else 0.0
