"""The preprocessor: a frozen record of a data set's way to batches, and a chainable facade."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from renaissance.core.errors import PhaseError, check_int, fail
from renaissance.data import catalog
from renaissance.data.download import fetch
from renaissance.data.loader import Loader, loader
from renaissance.data.normalization import Normalization, normalization_of
from renaissance.data.preparation import Dataset
from renaissance.data.transforms import Transform, check_chain


@dataclass(frozen=True, slots=True)
class PreprocessorConfig:
    """Everything a preprocessor can be told.

    Attributes:
        name: Data set by name: digits, mnist, fashion_mnist, cifar10, cifar100, folder, imagenet.
        path: Its directory, where it needs one.
        download: Fetch it into the directory if it is not there.
        load_workers: Threads that read encoded pictures ahead.
        preprocess_workers: Threads that prepare samples; None: one per processor.
        shuffle: Visit the training samples in a new order each epoch.
        drop_last: Leave out a last training batch that is not full.
        fully_mode: Everything in memory; else (partial) read while training.
        using_dts_format: Read train.dts and val.dts instead of the original files.
        normalization: None: the data set's usual one.
        train_transforms: Applied to training samples, in order.
        val_transforms: Applied to validation samples.
        color_channels: Declared channels of encoded pictures, 1 or 3.
        cpu_binding: Bind the workers to processors in turn.
        tolerant: Replace damaged samples, and count them, instead of raising.
    """

    name: str | None = None
    path: str | None = None
    download: bool = False
    load_workers: int = 1
    preprocess_workers: int | None = None
    shuffle: bool = True
    drop_last: bool = False
    fully_mode: bool = True
    using_dts_format: bool = False
    normalization: Normalization | None = None
    train_transforms: tuple[Transform, ...] = ()
    val_transforms: tuple[Transform, ...] = ()
    color_channels: int = 3
    cpu_binding: bool = False
    tolerant: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The record as plain values, for a configuration file."""
        facts = asdict(self)
        for name in ("train_transforms", "val_transforms"):
            facts[name] = [repr(transform) for transform in getattr(self, name)]
        return facts


class Preprocessor:
    """Chainable facade over :class:`PreprocessorConfig`::

        data = Preprocessor().dataset("mnist", "~/mnist").train_transforms(Pad(2), RandomCrop(28))
        data.commit()
        train, val = data.train_loader(200, seed=123), data.val_loader(200)

    ``commit`` opens the data set and ends the configuration.
    """

    def __init__(self, config: PreprocessorConfig | None = None) -> None:
        self._config = PreprocessorConfig() if config is None else config
        self._train: Dataset | None = None
        self._val: Dataset | None = None

    @property
    def config(self) -> PreprocessorConfig:
        """The frozen record as it stands."""
        return self._config

    def _set(self, call: str, **changes: Any) -> Preprocessor:
        if self._train is not None:
            raise PhaseError(f"{call} comes too late: the preprocessor is committed")
        self._config = replace(self._config, **changes)
        return self

    def _flag(self, call: str, value: Any) -> Preprocessor:
        if not isinstance(value, bool):
            fail(TypeError, call, value, "True or False")
        return self._set(call, **{call: value})

    def dataset(self, name: str, path: str | os.PathLike[str] | None = None) -> Preprocessor:
        """Choose the data set by name, and its directory."""
        catalog.entry_of(name)
        return self._set("dataset", name=name, path=None if path is None else os.fspath(path))

    def download(self, enabled: bool = True) -> Preprocessor:
        """Fetch it into its directory if it is not there."""
        return self._flag("download", enabled)

    def load_workers(self, count: int) -> Preprocessor:
        """Threads that read encoded pictures ahead; 0: each is read when it is needed."""
        return self._set("load_workers", load_workers=check_int("load_workers", count, 0, 4096))

    def preprocess_workers(self, count: int) -> Preprocessor:
        """Threads that prepare samples; their number never changes a byte."""
        checked = check_int("preprocess_workers", count, 1, 4096)
        return self._set("preprocess_workers", preprocess_workers=checked)

    def shuffle(self, enabled: bool = True) -> Preprocessor:
        """Visit the training samples in a new order each epoch."""
        return self._flag("shuffle", enabled)

    def drop_last(self, enabled: bool = True) -> Preprocessor:
        """Leave out a last training batch that is not full."""
        return self._flag("drop_last", enabled)

    def fully_mode(self, enabled: bool = True) -> Preprocessor:
        """Hold everything in memory."""
        return self._flag("fully_mode", enabled)

    def partial_mode(self) -> Preprocessor:
        """Read while training; the next batch's pictures while the present one is prepared."""
        return self._set("partial_mode", fully_mode=False)

    def using_dts_format(self, enabled: bool = True) -> Preprocessor:
        """Read train.dts and val.dts in the directory."""
        return self._flag("using_dts_format", enabled)

    def normalization(self, value: Normalization | str) -> Preprocessor:
        """Mean and standard deviation, as a record or a preset's name."""
        return self._set("normalization", normalization=normalization_of(value))

    def train_transforms(self, *transforms: Transform) -> Preprocessor:
        """What is done to training samples, in order."""
        return self._set("train_transforms", train_transforms=check_chain(transforms))

    def val_transforms(self, *transforms: Transform) -> Preprocessor:
        """What is done to validation samples, in order."""
        return self._set("val_transforms", val_transforms=check_chain(transforms))

    def color_channels(self, count: int) -> Preprocessor:
        """Channels encoded pictures are decoded to, 1 or 3."""
        if check_int("color_channels", count, 1, 3) == 2:
            fail(ValueError, "color_channels", count, "1 or 3")
        return self._set("color_channels", color_channels=count)

    def cpu_binding(self, enabled: bool = True) -> Preprocessor:
        """Bind the workers to processors in turn."""
        return self._flag("cpu_binding", enabled)

    def tolerant(self, enabled: bool = True) -> Preprocessor:
        """Replace a damaged sample by the next good one, and count it, instead of raising."""
        return self._flag("tolerant", enabled)

    def commit(self) -> Preprocessor:
        """Open both splits; configuring ends here.

        Raises:
            PhaseError: It is committed already.
            ValueError: No data set was chosen, or it needs a path.
            FileNotFoundError, FormatError: It is not there, or damaged; nothing is committed then.
        """
        c = self._config
        if self._train is not None:
            raise PhaseError("commit comes too late: the preprocessor is committed")
        if c.name is None:
            fail(ValueError, "dataset", None, "a call of dataset(name, path) before commit()")
        if c.download:
            fetch(c.name, catalog.locate(c.name, c.path))
        how: dict[str, Any] = {"channels": c.color_channels, "dts": c.using_dts_format}
        how["in_memory"] = c.fully_mode
        val = catalog.open_split(c.name, c.path, train=False, **how)
        self._train = catalog.open_split(c.name, c.path, train=True, **how)
        self._val = val
        return self

    def _committed(self, call: str, dataset: Dataset | None) -> Dataset:
        if dataset is None:
            raise PhaseError(f"{call} comes too early: call commit() first")
        return dataset

    @property
    def train(self) -> Dataset:
        """The training split.

        Raises:
            PhaseError: Not committed yet.
        """
        return self._committed("train", self._train)

    @property
    def val(self) -> Dataset:
        """The validation split.

        Raises:
            PhaseError: Not committed yet.
        """
        return self._committed("val", self._val)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self.train.num_classes

    def train_loader(self, batch_size: int, *, seed: int = 0, **how: Any) -> Loader:
        """Training batches; ``how`` goes to :func:`renaissance.data.loader` (dtype, ...)."""
        c = self._config
        chosen = {"shuffle": c.shuffle, "drop_last": c.drop_last, "transforms": c.train_transforms}
        return self._loader(self.train, batch_size, {"seed": seed, **chosen, **how})

    def val_loader(self, batch_size: int, *, seed: int = 0, **how: Any) -> Loader:
        """Validation batches, in order, the last one as it is."""
        chosen = {"transforms": self._config.val_transforms}
        return self._loader(self.val, batch_size, {"seed": seed, **chosen, **how})

    def _loader(self, dataset: Dataset, batch_size: int, how: dict[str, Any]) -> Loader:
        c = self._config
        assert c.name is not None
        settings = {
            "normalization": c.normalization or catalog.entry_of(c.name).normalization,
            "dtype": np.float32,
            "workers": c.preprocess_workers,
            "load_workers": 0 if c.fully_mode else c.load_workers,
            "cpu_binding": c.cpu_binding,
            "tolerant": c.tolerant,
        }
        return loader(dataset, batch_size=batch_size, **{**settings, **how})
