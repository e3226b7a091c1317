"""The same training step by several lowerings and frameworks, measured in one run.

Every contestant gets the same blueprint, weights and batches, and runs in a process of its own, so
that one's memory and compiled code do not touch another's. Agreement is checked before any time is
taken.
"""

from renaissance.compare.contestant import with_ours
from renaissance.compare.run import Comparison, compare
from renaissance.compare.workload import Workload

__all__ = ["Comparison", "Workload", "compare", "with_ours"]
