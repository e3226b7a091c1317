"""The data room: from files on disk to ready batches.

Data sets: :class:`ArrayDataset` in memory, read by :func:`load_digits` (shipped with the package),
:func:`load_mnist`, :func:`load_idx`, :func:`load_cifar`, :func:`read_dts`; encoded pictures in a
:class:`FolderDataset`, :class:`TarDataset` or :class:`DtsBlocks`.

Batches: :func:`loader` turns a data set into an iterator of ``(images, labels)``, after the
transforms and a :class:`Normalization`. A :class:`TransferStation` moves them to a device through
two host slots; a :class:`Preprocessor` configures all of this in a chain of calls. The pipeline
that runs on the device is in ``renaissance.data.device_pipeline``, and a loader's twin there in
``renaissance.data.device_loader``; only these modules need jax.
"""

from renaissance.data.catalog import open_dts
from renaissance.data.cifar import load_cifar, read_cifar, write_cifar
from renaissance.data.dataset import ArrayDataset
from renaissance.data.digits import DIGITS, load_digits
from renaissance.data.dts import read_dts, write_dts
from renaissance.data.dts_blocks import DtsBlocks, write_dts_blocks
from renaissance.data.dts_header import DtsHeader
from renaissance.data.encoded import EncodedDataset, decode_all
from renaissance.data.folder import FolderDataset, TarDataset
from renaissance.data.idx import load_idx, load_mnist, read_idx, write_idx
from renaissance.data.loader import Loader, loader
from renaissance.data.normalization import (
    CIFAR,
    IMAGENET,
    MLPERF,
    MNIST,
    NO_NORM,
    Normalization,
)
from renaissance.data.photometric import (
    ColorJitter,
    GaussianBlur,
    GaussianNoise,
    RandomAutocontrast,
    RandomGrayscale,
)
from renaissance.data.preprocessor import Preprocessor, PreprocessorConfig
from renaissance.data.transfer import TransferStation
from renaissance.data.transforms import (
    CenterCrop,
    DoNothing,
    FastRandomResizedCrop,
    Pad,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomScale,
    Resize,
    Transform,
)

__all__ = [
    "CIFAR",
    "DIGITS",
    "IMAGENET",
    "MLPERF",
    "MNIST",
    "NO_NORM",
    "ArrayDataset",
    "CenterCrop",
    "ColorJitter",
    "DoNothing",
    "DtsBlocks",
    "DtsHeader",
    "EncodedDataset",
    "FastRandomResizedCrop",
    "FolderDataset",
    "GaussianBlur",
    "GaussianNoise",
    "Loader",
    "Normalization",
    "Pad",
    "Preprocessor",
    "PreprocessorConfig",
    "RandomAutocontrast",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomScale",
    "Resize",
    "TarDataset",
    "Transform",
    "TransferStation",
    "decode_all",
    "load_cifar",
    "load_digits",
    "load_idx",
    "load_mnist",
    "loader",
    "open_dts",
    "read_cifar",
    "read_dts",
    "read_idx",
    "write_cifar",
    "write_dts",
    "write_dts_blocks",
    "write_idx",
]
