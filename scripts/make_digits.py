"""Write the digits that ship with the package: ``python scripts/make_digits.py``.

Source: the UCI handwritten digits (test part, 1,797 pictures of 8x8 with 17 grey levels), as
carried by scikit-learn. Levels 0..16 become 0..255 (rounded), which loses nothing.

Split: the samples are sorted by class, keeping the source's order within a class; every fifth
one, beginning with the first, goes to validation (360), the others to training (1,437). So each
class has its share in both, and no random number is involved.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from renaissance.data.dataset import ArrayDataset
from renaissance.data.dts import write_dts

HERE = Path(__file__).parent.parent / "renaissance" / "data" / "digits"


def main() -> None:
    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int32)
    by_class = np.argsort(labels, kind="stable")
    is_val = np.zeros(len(labels), bool)
    is_val[by_class[::5]] = True
    for split, chosen in (("train", ~is_val), ("val", is_val)):
        dataset = ArrayDataset(images[chosen], labels[chosen], 10, f"digits/{split}")
        header = write_dts(HERE / f"{split}.dts", dataset, is_training=split == "train")
        print(split, len(dataset), np.bincount(dataset.labels), header.mean[0], header.std[0])


if __name__ == "__main__":
    main()
