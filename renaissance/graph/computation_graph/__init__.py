"""The computation graph: what is computed, in which order, on which tensors. No shapes."""

from renaissance.graph.computation_graph.graph import ComputationGraph, SubGraph, single_writer
from renaissance.graph.computation_graph.node import ComputeNode, Node, RangeNode
from renaissance.graph.computation_graph.operands import Operands, Ref, RegionRun
from renaissance.graph.computation_graph.order import (
    BESIDE,
    EPOCH_BEGIN,
    INFERENCE_BEGIN,
    ONLY_IF_FINITE,
    PROLOGUE,
    TRAIN_STEP,
    VALIDATION_STEP,
    holding,
    train_step,
    validation_step,
)
from renaissance.graph.computation_graph.vocabulary import OPERATIONS, Operation

__all__ = [
    "BESIDE",
    "EPOCH_BEGIN",
    "INFERENCE_BEGIN",
    "ONLY_IF_FINITE",
    "OPERATIONS",
    "PROLOGUE",
    "TRAIN_STEP",
    "VALIDATION_STEP",
    "ComputationGraph",
    "ComputeNode",
    "Node",
    "Operands",
    "Operation",
    "RangeNode",
    "Ref",
    "RegionRun",
    "SubGraph",
    "holding",
    "single_writer",
    "train_step",
    "validation_step",
]
