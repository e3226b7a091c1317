"""ArchPlan, and the ten steps that make one of a blueprint."""

from __future__ import annotations

from renaissance.graph.arch_plan.expand import expand_tree
from renaissance.graph.arch_plan.flat import FlatLayer
from renaissance.graph.arch_plan.normalise import (
    drop_identities,
    finish_with_head,
    name_batch_norms,
    normalise_flatten,
)
from renaissance.graph.arch_plan.plan import ArchPlan
from renaissance.graph.arch_plan.residuals import merge_residuals
from renaissance.graph.arch_plan.sequences import (
    merge_pairs_and_mark_first,
    merge_quadruples,
    merge_triples,
)
from renaissance.graph.arch_plan.shapes import infer_shapes

STEPS = (
    expand_tree,
    name_batch_norms,
    finish_with_head,
    drop_identities,
    normalise_flatten,
    infer_shapes,
    merge_residuals,
    merge_quadruples,
    merge_triples,
    merge_pairs_and_mark_first,
)

__all__ = ["STEPS", "ArchPlan", "FlatLayer", *(step.__name__ for step in STEPS)]
