"""From a blueprint to a plan of shapes, memory and operations; no jax, no device."""

from renaissance.graph import descriptors as _built_in_kinds  # noqa: F401  -- fills the registry
