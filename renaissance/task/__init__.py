"""The task room: whole trainings, from configuration to result.

:class:`DeepLearningTask` runs a training; its chain of calls is documented at
:class:`~renaissance.task.chain.OptionChain`.
"""

from renaissance.task.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from renaissance.task.deep_learning import DeepLearningTask
from renaissance.task.interrupt import TrainingInterrupted
from renaissance.task.metrics import EpochRecord, TrainingResult, read_metrics
from renaissance.task.options import TTA, CompileInfo
from renaissance.task.simple import SimpleTask

__all__ = [
    "TTA",
    "Checkpoint",
    "CompileInfo",
    "DeepLearningTask",
    "EpochRecord",
    "SimpleTask",
    "TrainingInterrupted",
    "TrainingResult",
    "load_checkpoint",
    "read_metrics",
    "save_checkpoint",
]
