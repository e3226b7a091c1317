"""DTensor: where a tensor lives. A descriptor only; it never owns memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from renaissance.core.types import Bank, DType, Region


@dataclass(frozen=True, slots=True)
class DTensor:
    """A tensor placed in a region of the memory plan.

    One plan of descriptors serves any number of devices, because nothing here is an address.

    Attributes:
        id: Index in the plan, unique.
        name: Unique inside its region, such as ``"conv1.weight"`` or ``"conv1.y"``.
        shape: Dimensions; NHWC for maps, KRSC for filters, ``(out, in)`` for fully connected ones.
        dtype: Element type.
        region: The region it lies in.
        offset: Byte offset inside the region's bank, a multiple of 256.
        slot_bytes: Bytes reserved: at least :attr:`nbytes`, the largest need over all variants.
    """

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: DType
    region: Region
    offset: int
    slot_bytes: int

    @property
    def bank(self) -> Bank:
        """The bank the offset counts in."""
        return self.region.bank

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes the elements fill."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides in elements."""
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    @property
    def end(self) -> int:
        """First byte after the slot."""
        return self.offset + self.slot_bytes
