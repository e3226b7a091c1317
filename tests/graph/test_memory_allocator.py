"""The allocators: tensors that live together never share a byte, and little is wasted."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from renaissance.graph.memory_plan.allocator import (
    HoleList,
    best_fit,
    fitting_guests,
    in_a_row,
    live_bytes,
    rotating_slots,
)
from renaissance.graph.memory_plan.lifetime import Lifetime

lives = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda p: Lifetime(p[0], sum(p)))
tensors = st.lists(st.tuples(st.integers(1, 9).map(lambda n: 256 * n), lives), max_size=25)


def split(drawn):
    sizes = {index: nbytes for index, (nbytes, _) in enumerate(drawn)}
    return sizes, {index: life for index, (_, life) in enumerate(drawn)}


@pytest.mark.parametrize("place", [best_fit, rotating_slots])
@given(tensors)
def test_tensors_that_live_together_are_disjoint_and_inside(place, drawn):
    sizes, lifetimes = split(drawn)
    allocation = place(sizes, lifetimes)
    assert set(allocation.offsets) == set(sizes)
    for a, b in combinations(sizes, 2):
        if lifetimes[a].overlaps(lifetimes[b]):
            first, second = sorted((a, b), key=allocation.offsets.__getitem__)
            assert allocation.offsets[first] + sizes[first] <= allocation.offsets[second]
    assert all(offset % 256 == 0 for offset in allocation.offsets.values())
    assert all(allocation.offsets[i] + sizes[i] <= allocation.nbytes for i in sizes)
    assert live_bytes(sizes, lifetimes) <= allocation.nbytes <= sum(sizes.values())


@given(tensors)
def test_live_bytes_is_the_fullest_moment(drawn):
    sizes, lifetimes = split(drawn)
    moments = [
        sum(sizes[i] for i in sizes if lifetimes[i].begin <= t <= lifetimes[i].end)
        for t in range(20)
    ]
    assert live_bytes(sizes, lifetimes) == max(moments)


@given(tensors)
def test_there_are_as_many_slots_as_tensors_alive_at_once(drawn):
    sizes, lifetimes = split(drawn)
    ones = dict.fromkeys(sizes, 1)
    assert len(rotating_slots(sizes, lifetimes).slots) == live_bytes(ones, lifetimes)


def test_best_fit_takes_the_smallest_hole_that_is_large_enough():
    sizes = {"wide": 768, "wall": 256, "narrow": 512, "wall2": 256, "late": 512}
    lifetimes = {
        "wide": Lifetime(0, 1),
        "wall": Lifetime(0, 9),
        "narrow": Lifetime(1, 2),
        "wall2": Lifetime(2, 9),
        "late": Lifetime(3, 9),
    }
    allocation = best_fit(sizes, lifetimes)
    assert allocation.offsets["wide"] == 0
    assert allocation.offsets["wall2"] == 0  # in what wide left
    assert allocation.offsets["late"] == 256  # exactly the rest of it
    assert allocation.nbytes == 768 + 256 + 512


@given(tensors, tensors)
def test_guests_lie_in_holes_and_cost_no_byte(residents, guests):
    sizes, lifetimes = split([*residents, *guests])
    home = {key: sizes[key] for key in range(len(residents))}
    found = fitting_guests(home, {k: n for k, n in sizes.items() if k not in home}, lifetimes)
    assert not set(found) & set(home)
    together = best_fit({k: n for k, n in sizes.items() if k in home or k in found}, lifetimes)
    assert together.nbytes <= live_bytes(sizes, lifetimes) + best_fit(home, lifetimes).nbytes
    assert together.nbytes <= sum(home.values())


def test_a_guest_takes_the_bytes_of_the_dead_and_one_too_large_stays_out():
    home, guests = {"a": 1024, "b": 512}, {"fits": 1024, "late": 512, "large": 1536, "early": 256}
    lifetimes = {"a": Lifetime(0, 1), "b": Lifetime(0, 9), "early": Lifetime(1, 1)}
    lifetimes |= {"fits": Lifetime(2, 3), "late": Lifetime(4, 5), "large": Lifetime(6, 7)}
    assert fitting_guests(home, guests, lifetimes) == ["fits", "late"]
    assert best_fit({**home, "fits": 1024, "late": 512}, lifetimes).nbytes == 1536


def test_a_hole_at_the_top_is_grown_into():
    holes = HoleList()
    first, second = holes.take(256), holes.take(256)
    holes.give(second, 256)
    assert holes.take(1024) == second
    assert (first, holes.top) == (0, 256 + 1024)


def test_holes_beside_each_other_become_one():
    holes = HoleList()
    offsets = [holes.take(256) for _ in range(4)]
    for offset in (offsets[0], offsets[2], offsets[1]):
        holes.give(offset, 256)
    assert (holes.begins, holes.ends) == ([0], [768])
    assert holes.take(768) == 0


def test_a_tensor_is_not_placed_into_bytes_that_die_in_the_stage_of_its_birth():
    sizes = {"x": 256, "y": 256}
    together = {"x": Lifetime(0, 1), "y": Lifetime(1, 2)}
    after = {"x": Lifetime(0, 1), "y": Lifetime(2, 2)}
    for place in (best_fit, rotating_slots):
        assert place(sizes, together).nbytes == 512
        assert place(sizes, after).nbytes == 256


def test_always_alive_tensors_lie_in_a_row():
    allocation = in_a_row({"a": 256, "b": 768, "c": 512})
    assert allocation.offsets == {"a": 0, "b": 256, "c": 1024}
    assert allocation.nbytes == 1536
