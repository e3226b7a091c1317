"""Reports: complete, to scale, well formed, readable without a device."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from renaissance.core.types import Bank, GraphId
from renaissance.graph.compiler import CompiledGraph
from renaissance.graph.report import pictures, report, write_pictures
from renaissance.graph.report.memory_svg import _LABEL_STEP, spread
from renaissance.graph.report.palette import OTHER, operation_colour, region_colour
from renaissance.graph.report.svg import Drawing
from renaissance.graph.report.units import human
from renaissance.models import by_name, default_input_shape
from tests.graph.support import compiled

SVG = "{http://www.w3.org/2000/svg}"


def network(name: str, **settings) -> CompiledGraph:
    return compiled(by_name(name).layer, default_input_shape(name), 32, amp=True, **settings)


@pytest.fixture(scope="module")
def resnet() -> CompiledGraph:
    return network("resnet18", ema=True, first_moment=True, last_train_batch=8)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1048575, "1.0 MiB"),
     (5 * 2**30, "5.0 GiB"), (3 * 2**50, "3072.0 TiB")],
)  # fmt: skip
def test_sizes(nbytes, text):
    assert human(nbytes) == text


def test_the_text_names_every_region_graph_and_variant(resnet):
    text = report(resnet)
    plan = resnet.memory[0]
    assert all(span.region.name in text for span in plan.regions)
    assert all(f"  {graph_id.name} " in text for graph_id in GraphId)
    assert all(f"{span.nbytes:,}" in text for span in plan.regions if span.nbytes)
    assert "train_lowres_last  8x224x224x3" in text
    used = [graph for graph in resnet.graph if len(graph)]
    count = sum(2 if graph.depends_on_shape else 1 for graph in used)
    assert f"\n{count} executables serve all variants" in text
    assert max(map(len, text.splitlines())) <= 100


def test_nodes_and_layout_on_request(resnet):
    short, long = report(resnet), report(resnet, nodes=True, layout=True)
    assert long.startswith(short)
    assert "conv_statistics_forward(x=I_A_DATA/images, w=A_FIRST_CONV/conv1.weight" in long
    assert all(tensor.name in long for tensor in resnet.memory[0].tensors.values())


def test_the_pictures_are_well_formed_and_stay_on_their_sheet(resnet):
    for name, text in pictures(resnet, "resnet18").items():
        root = ElementTree.fromstring(text)
        width, height = float(root.get("width")), float(root.get("height"))
        assert root.find(f"{SVG}title").text.endswith("resnet18, 32x224x224x3, AMP, fused"), name
        for box in root.iter(f"{SVG}rect"):
            if box.get("width") == "100%":
                continue
            x, y, w, h = (float(box.get(key)) for key in ("x", "y", "width", "height"))
            assert -0.5 <= x and x + w <= width + 0.5 and -0.5 <= y and y + h <= height + 0.5, name
        for label in root.iter(f"{SVG}text"):
            assert 0 < float(label.get("x")) < width and 0 < float(label.get("y")) < height


def test_regions_are_drawn_to_scale(resnet):
    plan = resnet.memory[0]
    root = ElementTree.fromstring(pictures(resnet, "resnet18")["memory.svg"])
    heights: dict[str, float] = {}
    for box in root.iter(f"{SVG}rect"):
        tip = box.find(f"{SVG}title")
        if tip is not None:  # the strip comes first, the columns overwrite it
            heights[tip.text.split()[1].rstrip(":")] = float(box.get("height"))
    assert set(heights) == {span.region.name for span in plan.regions if span.nbytes}
    for span in plan.regions:
        if span.nbytes:
            share = span.nbytes / plan.bank_bytes(span.bank)
            assert heights[span.region.name] == pytest.approx(620 * share, abs=0.01)


def test_the_lifetimes_show_every_reused_tensor_once(resnet):
    root = ElementTree.fromstring(pictures(resnet, "resnet18")["lifetimes.svg"])
    tips = [t.text for t in root.iter(f"{SVG}title")][1:]
    layout = resnet.memory[0].layout
    assert len(tips) == len(layout.lives) - len(layout.tenants)


def test_the_graph_shows_every_node_of_the_pass(resnet):
    root = ElementTree.fromstring(pictures(resnet, "resnet18")["graph.svg"])
    tips = {t.text for t in root.iter(f"{SVG}title")}
    order = (GraphId.FIRST_LAYER_FWD_A, GraphId.DEEP_FWD_BWD, GraphId.FIRST_LAYER_BWD_A)
    nodes = {str(node) for node in resnet.graph.nodes(order) if node.op != "copy"}
    assert nodes <= tips


def test_the_step_shows_every_subgraph_that_has_work(resnet):
    text = pictures(resnet, "resnet18")["step.svg"]
    for graph_id in resnet.train_order:
        assert (f">{graph_id.name}<" in text) == (len(resnet.graph[graph_id]) > 0)


@pytest.mark.parametrize("name", ["mlp", "lenet", "nin", "mobilenet_v2"])
def test_other_networks_are_drawn_too(name, tmp_path):
    paths = write_pictures(network(name), name, tmp_path / "new" / "folder")
    assert [p.name for p in paths] == ["memory.svg", "lifetimes.svg", "step.svg", "graph.svg"]
    for path in paths:
        ElementTree.parse(path)


@given(st.lists(st.floats(100, 700), max_size=41).map(sorted))
def test_labels_keep_their_order_and_never_touch(middles):
    labels = spread(middles, 100, 620)
    assert len(labels) == len(middles)
    assert all(b - a >= _LABEL_STEP - 1e-6 for a, b in zip(labels, labels[1:], strict=False))
    assert all(100 - 1e-6 <= label <= 720 + 1e-6 for label in labels)


def test_labels_with_room_stay_where_they_are():
    assert spread([100, 200, 300], 100, 620) == [100, 200, 300]


def test_text_in_a_picture_is_escaped():
    drawing = Drawing(10, 10, "a < b & c")
    drawing.text(1, 1, 'x < "y"')
    root = ElementTree.fromstring(drawing.render())
    assert root.find(f"{SVG}title").text == "a < b & c"
    assert root.find(f"{SVG}text").text == 'x < "y"'


def test_every_operation_and_region_has_a_colour(resnet):
    nodes = resnet.graph.nodes((GraphId.DEEP_FWD_BWD, GraphId.INF_MAIN_A))
    assert all(operation_colour(node.op) != OTHER for node in nodes)
    assert all(region_colour(span.region).startswith("#") for span in resnet.memory[0].regions)


def test_the_command_prints_and_draws_where_jax_cannot_be_imported(tmp_path):
    program = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "from renaissance.cli.show import add_parser, run\n"
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "add_parser(parser.add_subparsers(dest='command'))\n"
        "sys.exit(run(parser.parse_args(sys.argv[1:])))\n"
    )
    arguments = "show resnet18 --stem cifar --classes 10 --batch 64 --optimizer lars --amp --ema"
    more = f"--last-batch 16 --end-size 24 --val-size 40 --nodes --layout --svg {tmp_path}"
    command = [sys.executable, "-c", program, *arguments.split(), *more.split()]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "val_last           64x40x40x3" in done.stdout
    assert done.stdout.count("\nwrote ") == 4 == len(list(tmp_path.iterdir()))
    assert all(bank.value in done.stdout for bank in Bank)
