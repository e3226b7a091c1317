"""Reports for eyes: tables as text, the memory map and the graphs as pictures."""

from renaissance.graph.report.pictures import pictures, write_pictures
from renaissance.graph.report.text import report

__all__ = ["pictures", "report", "write_pictures"]
