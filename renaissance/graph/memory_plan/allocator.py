"""Ways to share bytes between tensors that do not live at the same time.

All go through the tensors once, in order of birth, and are told sizes that are multiples of the
alignment; the offsets they return are relative to the region.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from typing import TypeVar

from renaissance.graph.memory_plan.lifetime import Lifetime

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where each tensor lies and how many bytes all of them need.

    Attributes:
        offsets: By tensor, in bytes.
        nbytes: The region's size.
        slots: For rotating slots their sizes, else empty.
    """

    offsets: dict
    nbytes: int
    slots: tuple[int, ...] = ()


@dataclass(slots=True)
class HoleList:
    """Free byte ranges below ``top``, sorted by address and never adjacent."""

    top: int = 0
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def take(self, nbytes: int) -> int:
        """The smallest hole that fits; else the top grows, a hole that touches it included."""
        best, best_size = -1, 0
        for index, (begin, end) in enumerate(zip(self.begins, self.ends, strict=True)):
            size = end - begin
            if size >= nbytes and (best < 0 or size < best_size):
                best, best_size = index, size
        if best < 0:
            if self.ends and self.ends[-1] == self.top:
                offset = self.begins.pop()
                self.ends.pop()
            else:
                offset = self.top
            self.top = offset + nbytes
            return offset
        offset = self.begins[best]
        if best_size == nbytes:
            del self.begins[best], self.ends[best]
        else:
            self.begins[best] += nbytes
        return offset

    def fits(self, nbytes: int) -> bool:
        """Whether some hole is large enough."""
        pairs = zip(self.begins, self.ends, strict=True)
        return any(end - begin >= nbytes for begin, end in pairs)

    def give(self, offset: int, nbytes: int) -> None:
        """Return a range, joined with the holes beside it."""
        end = offset + nbytes
        index = bisect_left(self.begins, offset)
        if index < len(self.begins) and self.begins[index] == end:
            end = self.ends[index]
            del self.begins[index], self.ends[index]
        if index > 0 and self.ends[index - 1] == offset:
            self.ends[index - 1] = end
        else:
            self.begins.insert(index, offset)
            self.ends.insert(index, end)


def best_fit(sizes: Mapping[Key, int], lives: Mapping[Key, Lifetime]) -> Allocation:
    """Place each tensor, at its birth, into the smallest hole left by dead ones."""
    return _best_fit(sizes, lives, frozenset())


def fitting_guests(
    residents: Mapping[Key, int], guests: Mapping[Key, int], lives: Mapping[Key, Lifetime]
) -> list[Key]:
    """The guests that find a hole at their birth, while :func:`best_fit` places the residents.

    Placed together with these, the residents need no byte more.
    """
    placed = _best_fit({**residents, **guests}, lives, frozenset(guests)).offsets
    return [key for key in guests if key in placed]


def _best_fit(
    sizes: Mapping[Key, int], lives: Mapping[Key, Lifetime], guests: frozenset[Key]
) -> Allocation:
    """Guests are left out where the top would have to grow for them."""
    holes, offsets = HoleList(), {}
    dying: list[tuple[int, int, int]] = []
    for key in sorted(sizes, key=lambda k: (lives[k].begin, -sizes[k])):
        while dying and dying[0][0] < lives[key].begin:
            _, offset, nbytes = heappop(dying)
            holes.give(offset, nbytes)
        if key in guests and not holes.fits(sizes[key]):
            continue
        offsets[key] = holes.take(sizes[key])
        heappush(dying, (lives[key].end, offsets[key], sizes[key]))
    return Allocation(offsets, holes.top)


def rotating_slots(sizes: Mapping[Key, int], lives: Mapping[Key, Lifetime]) -> Allocation:
    """Hand a few whole slots around: as many as tensors are alive at once, each as large as its
    largest tensor.

    A tensor takes the free slot that wastes least, or grows least.
    """
    capacity: list[int] = []
    free: list[tuple[int, int]] = []  # (capacity, slot), sorted
    dying: list[tuple[int, int]] = []
    slot_of = {}
    for key in sorted(sizes, key=lambda k: (lives[k].begin, -sizes[k])):
        while dying and dying[0][0] < lives[key].begin:
            slot = heappop(dying)[1]
            insort(free, (capacity[slot], slot))
        need = sizes[key]
        if free:
            fitting = bisect_left(free, (need, 0))
            slot = free.pop(min(fitting, len(free) - 1))[1]
            capacity[slot] = max(capacity[slot], need)
        else:
            slot = len(capacity)
            capacity.append(need)
        slot_of[key] = slot
        heappush(dying, (lives[key].end, slot))
    begins = list(accumulate(capacity, initial=0))
    offsets = {key: begins[slot] for key, slot in slot_of.items()}
    return Allocation(offsets, sum(capacity), tuple(capacity))


def in_a_row(sizes: Mapping[Key, int]) -> Allocation:
    """One after the other: for tensors that are always alive."""
    offsets, top = {}, 0
    for key, nbytes in sizes.items():
        offsets[key] = top
        top += nbytes
    return Allocation(offsets, top)


def live_bytes(sizes: Mapping[Key, int], lives: Mapping[Key, Lifetime]) -> int:
    """The most bytes alive in any stage: no placement can need less."""
    return _fullest(sizes, lives)[1]


def fullest_time(sizes: Mapping[Key, int], lives: Mapping[Key, Lifetime]) -> int:
    """The first stage in which most bytes are alive."""
    return _fullest(sizes, lives)[0]


def _fullest(sizes: Mapping[Key, int], lives: Mapping[Key, Lifetime]) -> tuple[int, int]:
    changes: dict[int, int] = {}
    for key, nbytes in sizes.items():
        changes[lives[key].begin] = changes.get(lives[key].begin, 0) + nbytes
        changes[lives[key].end + 1] = changes.get(lives[key].end + 1, 0) - nbytes
    now = most = when = 0
    for time in sorted(changes):
        now += changes[time]
        if now > most:
            when, most = time, now
    return when, most
