"""Banks as donated arrays: the state of the fused lowering, seen from outside as named tensors.

A bank is one uint8 array. It goes into every executable and comes back in the same memory, so the
device allocates nothing after :meth:`Arena.pack`. Whoever looks at a tensor gets a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from renaissance.core.errors import PlanError, fail
from renaissance.core.types import Bank, DType, Region

Tensors = Mapping[str, Any]


class Placed(Protocol):
    """What the arena needs of a planned tensor (:class:`~renaissance.tensor.dtensor.DTensor`)."""

    @property
    def name(self) -> str: ...
    @property
    def region(self) -> Region: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


class Arena:
    """Where the tensors of a program lie in its banks.

    Args:
        tensors: The tensors that live from step to step, with their places.
        bank_bytes: Size of every bank that is used.
        logical_shapes: Shape by name of tensors that are stored with padding, and of arrays that
            may happen to have a single element.
    """

    def __init__(
        self,
        tensors: Iterable[Placed],
        bank_bytes: Mapping[Bank, int],
        logical_shapes: Mapping[str, tuple[int, ...]] | None = None,
    ):
        self.bank_bytes = {bank: bank_bytes[bank] for bank in Bank if bank_bytes.get(bank)}
        self.logical_shapes = dict(logical_shapes or {})
        self.regions: dict[Region, dict[str, Placed]] = {}
        for tensor in tensors:
            if tensor.region.bank is not Bank.PERSISTENT:
                fail(PlanError, f"bank of {tensor.name}", tensor.region.bank.name, "PERSISTENT")
            self.regions.setdefault(tensor.region, {})[tensor.name] = tensor

    def pack(self, values: Mapping[Region, Tensors]) -> BankState:
        """A state with these values; what is not given starts as zeros.

        Raises:
            PlanError: a tensor has no place, or another shape than its place.
        """
        host = np.zeros(self.bank_bytes[Bank.PERSISTENT], np.uint8)
        for region, tensors in values.items():
            for name, value in tensors.items():
                self._write(host, self._placed(region, name), np.asarray(value))
        banks = {
            bank: jnp.array(host, copy=True)
            if bank is Bank.PERSISTENT
            else jnp.zeros(size, jnp.uint8)
            for bank, size in self.bank_bytes.items()
        }
        return BankState(self, banks)

    def logical_shape(self, tensor: Placed) -> tuple[int, ...]:
        """Shape seen from outside: no padding, and no axis for a scalar."""
        is_scalar = tensor.shape == (1,) and tensor.region.name[0] in "SR"
        return self.logical_shapes.get(tensor.name, () if is_scalar else tensor.shape)

    def _placed(self, region: Region, name: str) -> Placed:
        found = self.regions.get(region, {}).get(name)
        if found is None:
            known = sorted(self.regions.get(region, {}))
            fail(PlanError, f"tensor of {region.name}", name, f"one of {known}")
        return found

    def _write(self, host: np.ndarray, tensor: Placed, value: np.ndarray) -> None:
        shape = self.logical_shape(tensor)
        if value.shape != shape:
            fail(
                PlanError,
                f"shape of {tensor.region.name}[{tensor.name!r}]",
                value.shape,
                str(shape),
            )
        stored = np.zeros(tensor.shape, tensor.dtype.numpy)
        stored[tuple(slice(extent) for extent in shape) if shape else ...] = value
        host[tensor.offset : tensor.offset + tensor.nbytes] = stored.reshape(-1).view(np.uint8)

    def read(self, bank: jax.Array, tensors: Mapping[str, Placed]) -> dict[str, np.ndarray]:
        """Host copies of tensors that lie near each other, such as a region's: one transfer.

        The bank itself is never viewed: a live view blocks donation.
        """
        if not tensors:
            return {}
        begin = min(tensor.offset for tensor in tensors.values())
        end = max(tensor.offset + tensor.nbytes for tensor in tensors.values())
        piece = np.array(jax.lax.dynamic_slice_in_dim(bank, jnp.asarray(begin), end - begin))
        return {name: self._cut(piece, begin, tensor) for name, tensor in tensors.items()}

    def _cut(self, piece: np.ndarray, begin: int, tensor: Placed) -> np.ndarray:
        at = tensor.offset - begin
        stored = piece[at : at + tensor.nbytes].view(tensor.dtype.numpy).reshape(tensor.shape)
        shape = self.logical_shape(tensor)
        return stored[tuple(slice(e) for e in shape)].copy() if shape else stored.reshape(()).copy()


@jax.tree_util.register_pytree_with_keys_class
class BankState:
    """The banks of a program; a pytree, donated from step to step.

    ``state[Region.W_FC_WEIGHT]`` gives copies that stay valid after the state has been donated.

    Attributes:
        arena: Where tensors lie in the banks.
        arrays: The banks' arrays, in the order of ``arena.bank_bytes``: what executables take, so
            that a step need not build a dictionary of them.
    """

    __slots__ = ("arena", "arrays")

    def __init__(self, arena: Arena, banks: Mapping[Bank, Any]):
        self.arena = arena
        self.arrays: tuple[Any, ...] = tuple(banks[bank] for bank in arena.bank_bytes)

    @classmethod
    def of_arrays(cls, arena: Arena, arrays: tuple[Any, ...]) -> BankState:
        """A state of arrays in the order of ``arena.bank_bytes``."""
        state = object.__new__(cls)
        state.arena, state.arrays = arena, arrays
        return state

    @property
    def banks(self) -> dict[Bank, Any]:
        """The arrays by bank."""
        return dict(zip(self.arena.bank_bytes, self.arrays, strict=True))

    def __getitem__(self, region: Region) -> dict[str, np.ndarray]:
        self.check_alive()
        bank = self.banks[Bank.PERSISTENT]
        return self.arena.read(bank, self.arena.regions.get(region, {}))

    def region(self, region: Region) -> dict[str, np.ndarray]:
        """Copies of a region's tensors, empty if the configuration does not need it."""
        return self[region]

    def replace(self, updates: Mapping[Region, Tensors]) -> BankState:
        """A new state with these tensors replaced; the old one stays valid."""
        values = {region: self[region] for region in self.arena.regions}
        for region, tensors in updates.items():
            values[region] = {**values.get(region, {}), **tensors}
        return self.arena.pack(values)

    def __iter__(self) -> Iterator[Region]:
        return iter(self.arena.regions)

    def __len__(self) -> int:
        return len(self.arena.regions)

    def named_leaves(self) -> Iterator[tuple[Region, str, np.ndarray]]:
        """Every tensor that lives from step to step, with its region and name, as a copy."""
        for region in self.arena.regions:
            for name, value in self[region].items():
                yield region, name, value

    def check_alive(self) -> None:
        """Raise if the banks have been donated to a later step.

        Raises:
            ValueError: names the first bank that is gone.
        """
        for bank, array in self.banks.items():
            if isinstance(array, jax.Array) and array.is_deleted():
                raise ValueError(
                    f"the state's bank {bank.name} was given to an earlier call and is gone; "
                    "use the state that call returned"
                )

    def __repr__(self) -> str:
        sizes = ", ".join(f"{bank.value} {size:,}" for bank, size in self.arena.bank_bytes.items())
        return f"BankState({sizes} bytes)"

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Any]:
        """Leaves keyed by bank; see :mod:`jax.tree_util`."""
        names = (bank.name for bank in self.arena.bank_bytes)
        keys = map(jax.tree_util.GetAttrKey, names)
        return list(zip(keys, self.arrays, strict=True)), self.arena

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Leaves without keys."""
        return self.arrays, self.arena

    @classmethod
    def tree_unflatten(cls, arena: Arena, children: Any) -> BankState:
        """Inverse of :meth:`tree_flatten_with_keys`."""
        return cls.of_arrays(arena, tuple(children))
