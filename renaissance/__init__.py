"""renaissance: decide everything at compile time, do as little as possible at run time.

Define a model as a tree of layers, compile it before any data is seen, run its train step::

    import renaissance as rn

    model = rn.seq(rn.flatten(), rn.fc(128), rn.relu(), rn.fc(10))
    program = rn.compile(model, input_shape=(8, 8, 1), batch_size=64)
    state = program.init(seed=0)
    state, metrics = program.train_step(state, (images, labels))

Rooms that need no device (the model language, compiler, algorithms) load at once; the rest, and
with it jax, loads when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from renaissance.algo.clip import ClipByGlobalNorm, ClipByValue
from renaissance.algo.initializer import (
    ConstantInit,
    KaimingNormal,
    KaimingUniform,
    Normal,
    TruncatedNormal,
    XavierNormal,
    XavierUniform,
    Zeros,
)
from renaissance.algo.loss import CrossEntropy
from renaissance.algo.loss_scale import LossScale
from renaissance.algo.optimizer import LARS, SGD, Adam, AdamW
from renaissance.algo.scheduler import (
    WSD,
    Constant,
    CosineAnnealing,
    CosineAnnealingWithWarmRestarts,
    Exponential,
    MultiStep,
    Polynomial,
    Step,
)
from renaissance.core.errors import TrainingDiverged
from renaissance.core.types import Precision, Region
from renaissance.graph import blueprint as _blueprint
from renaissance.graph.blueprint import *  # noqa: F403  the model language, whole

__version__ = "0.1.0"

# loaded on first use: name -> module that holds it (a room of that name if the two are equal)
_LAZY = {
    "compile": "renaissance.program",
    "Program": "renaissance.program",
    "DeepLearningTask": "renaissance.task",
    "SimpleTask": "renaissance.task",
    "TTA": "renaissance.task",
    "CompileInfo": "renaissance.task",
    "Settings": "renaissance.core.settings",
    "GlobalSettings": "renaissance.core.settings",
    "Preprocessor": "renaissance.data",
    "data": "renaissance.data",
    "models": "renaissance.models",
    "ops": "renaissance.ops",
    "testing": "renaissance.testing",
}

if TYPE_CHECKING:
    from renaissance import data as data
    from renaissance import models as models
    from renaissance import ops as ops
    from renaissance import testing as testing
    from renaissance.core.settings import GlobalSettings as GlobalSettings
    from renaissance.core.settings import Settings as Settings
    from renaissance.data import Preprocessor as Preprocessor
    from renaissance.program import Program as Program
    from renaissance.program import compile as compile
    from renaissance.task import TTA as TTA
    from renaissance.task import CompileInfo as CompileInfo
    from renaissance.task import DeepLearningTask as DeepLearningTask
    from renaissance.task import SimpleTask as SimpleTask

__all__ = [
    *_blueprint.__all__,
    *_LAZY,
    "LARS",
    "SGD",
    "WSD",
    "Adam",
    "AdamW",
    "ClipByGlobalNorm",
    "ClipByValue",
    "Constant",
    "ConstantInit",
    "CosineAnnealing",
    "CosineAnnealingWithWarmRestarts",
    "CrossEntropy",
    "Exponential",
    "KaimingNormal",
    "KaimingUniform",
    "LossScale",
    "MultiStep",
    "Normal",
    "Polynomial",
    "Precision",
    "Region",
    "Step",
    "TrainingDiverged",
    "TruncatedNormal",
    "XavierNormal",
    "XavierUniform",
    "Zeros",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'renaissance' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    value = module if _LAZY[name] == f"renaissance.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
