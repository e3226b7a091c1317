"""The front half needs no jax: it works where importing jax fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "torch"):
            raise ImportError(f"{name} is refused")

sys.meta_path.insert(0, Refuse())

import importlib
import pkgutil

from renaissance import graph, models
from renaissance.graph.arch_plan import ArchPlan

for package in (graph, models):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

for name in models.names():
    for amp in (False, True):
        size = models.default_input_shape(name)
        plan = ArchPlan.from_blueprint(models.by_name(name), size, amp=amp)
        print(plan)
        assert ArchPlan.from_yaml(plan.to_yaml()) == plan
assert "jax" not in sys.modules
"""


def test_the_front_half_loads_and_plans_every_model_where_importing_jax_fails():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "25,557,032" in done.stdout
