"""The atlas: 6 x 33 entries, shared where shapes are equal or do not matter."""

from __future__ import annotations

import pytest

from renaissance.core.errors import PlanError
from renaissance.core.types import GraphId, Variant
from renaissance.graph.atlas import ExecutableKey, GraphAtlas
from renaissance.graph.blueprint import bn, conv, fc, gap, relu, seq
from renaissance.graph.options import ShapeId
from tests.graph.support import compiled

NETWORK = seq(conv(4, 3), relu(), gap(), fc(3))


def test_every_variant_and_graph_has_an_entry():
    atlas = compiled(NETWORK).atlas
    assert len(atlas) == 6 * 33
    for variant in Variant:
        for graph_id in GraphId:
            assert atlas.key(variant, graph_id).graph_id is graph_id


def test_variants_of_equal_shape_share_an_entry():
    atlas = compiled(NETWORK, last_train_batch=3, val_batch=4, last_val_batch=3).atlas
    deep = [atlas.key(variant, GraphId.DEEP_FWD_BWD) for variant in Variant]
    assert deep[0] == deep[2] == deep[4] != deep[1] == deep[3] == deep[5]


def test_what_works_on_no_rows_has_one_entry_for_all_variants():
    network = seq(conv(4, 3), bn(), relu(), gap(), fc(3))
    atlas = compiled(network, last_train_batch=2, train_end=(6, 6), amp=True).atlas
    shapeless = ("OPTIMIZER", "ZERO_GRAD", "NAN_CHECK_AND_GRAD_SCALING")
    for name in (*shapeless, "UPDATE_BN_INF_PARAMS", "UPDATE_STATS"):
        keys = {atlas.key(variant, GraphId[name]) for variant in Variant}
        assert keys == {ExecutableKey(GraphId[name], None)}
    for name in ("DEEP_FWD_BWD", "TRANSFER_A", "INF_MAIN_B", "FIRST_LAYER_BWD_A"):
        assert len({atlas.key(variant, GraphId[name]) for variant in Variant}) == 4


def test_an_executable_is_bound_once_and_found_by_all_that_share_it():
    atlas: GraphAtlas[str] = compiled(NETWORK, last_train_batch=2).atlas
    for key in atlas.keys():
        atlas.bind(key, f"{key.graph_id.name} {key.shape_id}")
    assert atlas[Variant.TRAIN_BASE, GraphId.DEEP_FWD_BWD] == "DEEP_FWD_BWD 4x8x8x3"
    assert atlas[Variant.TRAIN_LOWRES_LAST, GraphId.DEEP_FWD_BWD] == "DEEP_FWD_BWD 2x8x8x3"
    assert atlas[Variant.VAL_LAST, GraphId.OPTIMIZER] == "OPTIMIZER None"


def test_a_missing_executable_and_an_unknown_key_are_errors():
    atlas: GraphAtlas[str] = compiled(NETWORK).atlas
    with pytest.raises(PlanError, match="executable of OPTIMIZER in val_base is None"):
        atlas[Variant.VAL_BASE, GraphId.OPTIMIZER]
    with pytest.raises(PlanError, match="executable key is .* expected a key of this atlas"):
        atlas.bind(ExecutableKey(GraphId.DEEP_FWD_BWD, ShapeId(1, 2, 3, 4)), "")


def test_six_shapes_are_needed():
    graph = compiled(NETWORK).graph
    with pytest.raises(PlanError, match="number of shapes is 1, expected 6"):
        GraphAtlas(graph, [ShapeId(1, 8, 8, 3)])
