"""A drawing as SVG text: just the few shapes the reports need."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

FONT = "Helvetica, Arial, sans-serif"


def _attributes(values: Mapping[str, object]) -> str:
    pairs = ((name.replace("_", "-"), value) for name, value in values.items() if value is not None)
    return " ".join(f'{name}="{_number(value)}"' for name, value in pairs)


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


class Drawing:
    """Shapes on a white sheet, in the order they are added."""

    def __init__(self, width: float, height: float, title: str):
        """
        Args:
            width: In pixels.
            height: In pixels.
            title: Read by screen readers and shown by browsers.
        """
        self.width, self.height, self.title = width, height, title
        self._shapes: list[str] = []

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        stroke: str | None = None,
        radius: float = 0.0,
        tip: str = "",
        dash: str | None = None,
    ) -> None:
        """A filled rectangle; ``tip`` appears when the pointer rests on it."""
        values = {
            "x": float(x),
            "y": float(y),
            "width": float(width),
            "height": float(height),
            "rx": float(radius) or None,
            "fill": fill,
            "stroke": stroke,
            "stroke_dasharray": dash,
        }
        inner = f"<title>{escape(tip)}</title>" if tip else ""
        self._shapes.append(f"<rect {_attributes(values)}>{inner}</rect>")

    def line(
        self,
        *points: tuple[float, float],
        stroke: str = "#999",
        width: float = 1.0,
        dash: str | None = None,
        arrow: bool = False,
    ) -> None:
        """A line through points."""
        path = "M" + " L".join(f"{_number(float(x))} {_number(float(y))}" for x, y in points)
        self.path(path, stroke=stroke, width=width, dash=dash, arrow=arrow)

    def path(
        self,
        path: str,
        *,
        stroke: str = "#999",
        width: float = 1.0,
        dash: str | None = None,
        arrow: bool = False,
    ) -> None:
        """A path in SVG's own language."""
        values = {
            "d": path,
            "fill": "none",
            "stroke": stroke,
            "stroke_width": float(width),
            "stroke_dasharray": dash,
            "marker_end": "url(#arrow)" if arrow else None,
        }
        self._shapes.append(f"<path {_attributes(values)}/>")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 11.0,
        anchor: str = "start",
        fill: str = "#222",
        bold: bool = False,
    ) -> None:
        """A line of text whose baseline begins, ends or is centred at a point."""
        values = {
            "x": float(x),
            "y": float(y),
            "font_size": float(size),
            "text_anchor": None if anchor == "start" else anchor,
            "fill": fill,
            "font_weight": "bold" if bold else None,
        }
        self._shapes.append(f"<text {_attributes(values)}>{escape(text)}</text>")

    def render(self) -> str:
        """The document."""
        size = f'width="{_number(self.width)}" height="{_number(self.height)}"'
        box = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        marker = (
            '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
            'markerHeight="6" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker>'
        )
        lines = (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} font-family="{FONT}">',
            f"<title>{escape(self.title)}</title>",
            f"<defs>{marker}</defs>",
            '<rect width="100%" height="100%" fill="white"/>',
        )
        return "\n".join([*lines, *self._shapes, "</svg>"])
