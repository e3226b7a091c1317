"""Who may import whom. Data goes straight through the rooms; nothing reaches back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "renaissance"

# room -> (rooms of ours, third-party packages) it may import; the standard library is free
DOORS: dict[str, tuple[set[str], set[str]]] = {
    "core": ({"core"}, {"numpy"}),
    "tensor": ({"core", "tensor"}, {"numpy"}),
    "graph": ({"core", "tensor", "graph"}, {"numpy", "yaml"}),
    "algo": ({"core", "algo"}, {"numpy"}),
    "models": ({"graph", "models"}, set()),
    "data": (
        {"core", "tensor", "data", "runtime.library"},
        {"numpy", "cv2", "simplejpeg", "PIL", "jax", "tqdm"},
    ),
    "lowering": ({"core", "graph", "algo", "lowering"}, {"numpy", "jax"}),
    "lowering.calls": (
        {"core", "graph", "algo", "lowering.recipe", "lowering.calls"},
        {"numpy", "jax"},
    ),
    "lowering.launches": ({"core", "lowering.calls", "lowering.launches"}, {"numpy"}),
    "lowering.rewrites": (
        {"core", "lowering.calls", "lowering.launches", "lowering.rewrites"},
        {"numpy", "jax"},
    ),
    "lowering.fused": (
        {"core", "graph", "algo", "lowering.fused"}
        | {f"lowering.{room}" for room in ("calls", "launches", "rewrites")},
        {"numpy", "jax"},
    ),
    "runtime": ({"core", "lowering.calls.targets", "runtime"}, {"numpy", "jax"}),
    "ops": ({"core", "lowering", "ops"}, {"jax", "numpy"}),
    "testing": (
        {"core", "graph", "algo", "lowering", "testing", "program"},
        {"jax", "numpy", "chex"},
    ),
}
# rooms that may not be imported by anyone else
LEAVES = {"cli"}


def imports(path: Path) -> set[str]:
    """Absolute names of everything a file imports, at any depth of its code."""
    tree = ast.parse(path.read_text(), str(path))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module or "")
            if node.module == "renaissance" or (node.module or "").count(".") == 1:
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def files(room: str) -> list[Path]:
    """The Python files of a room, be it a package or a module."""
    path = PACKAGE.joinpath(*room.split("."))
    module = path.with_suffix(".py")
    return [module] if module.exists() else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("room", sorted(DOORS))
def test_a_room_imports_only_through_its_doors(room: str) -> None:
    ours, foreign = DOORS[room]
    wrong = []
    for path in files(room):
        for name in imports(path):
            top = name.split(".")[0]
            if top == "renaissance":
                inner = name.removeprefix("renaissance").removeprefix(".")
                fits = not inner or any(inner == d or inner.startswith(d + ".") for d in ours)
                if not fits and not (PACKAGE / inner.split(".")[0]).exists():
                    fits = True  # a name re-exported by the package, not a room
                if not fits and any(d.startswith(inner + ".") for d in ours):
                    fits = True  # "from renaissance.runtime import library"
                if not fits:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
            elif top in {"jax", "chex", "cv2", "simplejpeg", "PIL", "yaml", "tqdm", "matplotlib"}:
                if top not in foreign:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_reference_makes_no_custom_call() -> None:
    lowering = PACKAGE / "lowering"
    rooms = tuple(f"renaissance.{room}" for room in DOORS if room.startswith("lowering."))
    wrong = [
        f"{path.name} imports {name}"
        for path in lowering.glob("*.py")
        for name in imports(path)
        if name.startswith(rooms)
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_command_line() -> None:
    outside = [p for p in PACKAGE.rglob("*.py") if p.parts[len(PACKAGE.parts)] not in LEAVES]
    wrong = [
        str(path.relative_to(PACKAGE))
        for path in outside
        if path.name != "__main__.py"
        and any(name.startswith("renaissance.cli") for name in imports(path))
    ]
    assert not wrong
