"""The handwritten digits that ship with the package, so that training needs no download."""

from __future__ import annotations

from pathlib import Path

from renaissance.data.dataset import ArrayDataset
from renaissance.data.dts import read_dts
from renaissance.data.normalization import Normalization

DIGITS = Normalization((0.3058,), (0.3761,))
"""Mean and standard deviation of the training digits."""


def load_digits() -> tuple[ArrayDataset, ArrayDataset]:
    """The UCI handwritten digits: 8x8 grey pictures in ten classes.

    The split is fixed: sorted by class in the source's order, every fifth sample validates.

    Returns:
        The training split (1,437 samples) and the validation split (360).

    Source:
        E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, CC BY 4.0; see ATTRIBUTION.txt.
    """
    here = Path(__file__).parent
    return (
        read_dts(here / "train.dts", name="digits/train"),
        read_dts(here / "val.dts", name="digits/val"),
    )
