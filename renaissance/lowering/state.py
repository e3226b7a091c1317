"""The state of the XLA lowering: ordinary arrays for the tensors that live from step to step.

The same tensors the memory plan places in the PERSISTENT bank, under the same region and name, so
that both lowerings' states convert into each other without loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.types import Region

Tensors = dict[str, jax.Array]


@jax.tree_util.register_pytree_with_keys_class
class ArrayState:
    """Tensors by region and name; a pytree, donated from step to step.

    ``state[Region.W_FC_WEIGHT]`` gives copies that stay valid after the state has been donated.
    """

    __slots__ = ("_regions",)

    def __init__(self, regions: Mapping[Region, Mapping[str, Any]]):
        # region order is memory order; a region the configuration does not need is absent
        self._regions: dict[Region, Tensors] = {
            region: dict(regions[region]) for region in sorted(regions) if regions[region]
        }

    def region(self, region: Region) -> Tensors:
        """The live arrays of a region, empty if the configuration does not need it."""
        return self._regions.get(region, {})

    def replace(self, updates: Mapping[Region, Mapping[str, Any]]) -> ArrayState:
        """A state with whole regions replaced."""
        return ArrayState({**self._regions, **updates})

    def __getitem__(self, region: Region) -> dict[str, np.ndarray]:
        self.check_alive()
        return {name: np.array(value) for name, value in self.region(region).items()}

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def named_leaves(self) -> Iterator[tuple[Region, str, Any]]:
        """Every tensor with its region and name, in memory order."""
        for region, tensors in self._regions.items():
            for name, value in tensors.items():
                yield region, name, value

    def check_alive(self) -> None:
        """Raise if the arrays have been donated to a later step.

        Raises:
            ValueError: names the first leaf that is gone.
        """
        for region, name, value in self.named_leaves():
            if isinstance(value, jax.Array) and value.is_deleted():
                raise ValueError(
                    f"state tensor {region.name}[{name!r}] was given to an earlier train step and "
                    "is gone; use the state that step returned"
                )

    def __repr__(self) -> str:
        count = sum(len(tensors) for tensors in self._regions.values())
        return f"ArrayState({count} tensors in {len(self)} regions)"

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Any]:
        """Leaves keyed by region and tensor name; see :mod:`jax.tree_util`."""
        children = [
            (jax.tree_util.GetAttrKey(region.name), tensors)
            for region, tensors in self._regions.items()
        ]
        return children, tuple(self._regions)

    def tree_flatten(self) -> tuple[list[Any], Any]:
        """Leaves without keys: the path of every call."""
        return list(self._regions.values()), tuple(self._regions)

    @classmethod
    def tree_unflatten(cls, regions: tuple[Region, ...], children: Any) -> ArrayState:
        """Inverse of :meth:`tree_flatten_with_keys`."""
        state = object.__new__(cls)
        state._regions = dict(zip(regions, children, strict=True))
        return state


def owned(value: Any, dtype: Any = None) -> jax.Array:
    """A device array that owns its buffer.

    A numpy array may be shared with the device without a copy; a live view would block donation.
    """
    return jnp.array(value, dtype=dtype, copy=True)
