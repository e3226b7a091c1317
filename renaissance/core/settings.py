"""Global settings: one frozen record, and a chainable facade that edits it.

Only tasks read these; the functional API takes every choice as an argument and works without them.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from typing import Any

from renaissance.core.errors import PhaseError, check_int, check_real, fail

Resolution = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GlobalSettings:
    """What holds for a whole training, whatever the model.

    Attributes:
        device: ``"auto"`` (the accelerator jax finds, else the CPU), ``"cpu"`` or ``"gpu"``.
        gpu_ids: Devices asked for with ``"gpu"``.
        amp: Mixed precision: fp16 activations, fp32 master weights, dynamic loss scale.
        seed: Origin of every random decision, 64 bits.
        reproducible: Ask the compiler for bit-identical repeats where they cost speed.
        batch_size: Samples of one training step on one device; None until set.
        val_batch_size: Samples of one validation step; None: as :attr:`batch_size`.
        train_resolution: Side of the training pictures at the begin and at the end of the training,
            in pixels; equal unless the resolution is progressive. None: the data's own.
        val_resolution: Side of the validation pictures in pixels; None: the data's own.
        use_tf32: Allow TF32 in fp32 matrix products on devices that have it.
    """

    device: str = "auto"
    gpu_ids: tuple[int, ...] = ()
    amp: bool = False
    seed: int = 0
    reproducible: bool = False
    batch_size: int | None = None
    val_batch_size: int | None = None
    train_resolution: Resolution | None = None
    val_resolution: int | None = None
    use_tf32: bool = False

    @property
    def is_progressive(self) -> bool:
        """Whether the training resolution changes on the way."""
        return self.train_resolution is not None and len(set(self.train_resolution)) > 1

    def as_dict(self) -> dict[str, Any]:
        """The record as plain values, for a configuration file."""
        return asdict(self)


def check_bool(name: str, value: Any) -> bool:
    """Return ``value`` if it is a bool; nothing else counts as one."""
    if not isinstance(value, bool):
        fail(TypeError, name, value, "True or False")
    return value


def check_resolution(name: str, value: Any) -> Resolution:
    """A side in pixels, or a pair (begin, end), as a pair."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            fail(ValueError, name, value, "a side in pixels or a pair (begin, end)")
        return check_int(f"{name} begin", value[0], 1), check_int(f"{name} end", value[1], 1)
    side = check_int(name, value, 1)
    return side, side


class Settings:
    """Chainable facade over :class:`GlobalSettings`.

    Every call checks its value, edits the record and returns the facade::

        settings = Settings().use_cpu().amp().manual_seed(123).local_batch_size(200)

    A compiled task keeps the record it was compiled with and locks its settings: a later call would
    have no effect, so it is an error.
    """

    __slots__ = ("_locked_by", "_record")

    def __init__(self, record: GlobalSettings | None = None) -> None:
        self._record = GlobalSettings() if record is None else record
        self._locked_by: str | None = None

    @property
    def record(self) -> GlobalSettings:
        """The frozen record as it stands."""
        return self._record

    def lock(self, owner: str) -> None:
        """Refuse every later change, naming ``owner`` as the one that relies on the record."""
        self._locked_by = owner

    def _set(self, call: str, **changes: Any) -> Settings:
        if self._locked_by is not None:
            raise PhaseError(
                f"{call} comes too late: {self._locked_by} uses the settings and has left "
                "PLANNING; make new Settings() for another task"
            )
        self._record = replace(self._record, **changes)
        return self

    def use_cpu(self) -> Settings:
        """Run on the CPU."""
        return self._set("use_cpu", device="cpu", gpu_ids=())

    def use_gpu(self, *ids: int) -> Settings:
        """Run on one GPU; the first unless an id is given.

        Raises:
            ValueError: Several ids: a task drives one device.
        """
        checked = tuple(check_int("GPU id", i, 0) for i in ids) or (0,)
        if len(checked) > 1:
            fail(ValueError, "use_gpu", checked, "one id: a task drives one device")
        return self._set("use_gpu", device="gpu", gpu_ids=checked)

    def amp(self, enabled: bool = True) -> Settings:
        """Switch mixed precision on or off."""
        return self._set("amp", amp=check_bool("amp", enabled))

    def manual_seed(self, seed: int) -> Settings:
        """Fix the seed, 0 to 2^64 - 1."""
        return self._set("manual_seed", seed=check_int("seed", seed, 0, 2**64 - 1))

    def auto_seed(self) -> Settings:
        """Take a fresh 32-bit seed from the operating system; the run records it."""
        return self._set("auto_seed", seed=secrets.randbits(32))

    def reproducible(self, enabled: bool = True) -> Settings:
        """Ask for bit-identical repeats also where the device's fastest code is not."""
        return self._set("reproducible", reproducible=check_bool("reproducible", enabled))

    def local_batch_size(self, size: int, val: int | None = None) -> Settings:
        """Samples of one step on one device; ``val`` for validation, the same unless given."""
        return self._set(
            "local_batch_size",
            batch_size=check_int("batch size", size, 1),
            val_batch_size=None if val is None else check_int("validation batch size", val, 1),
        )

    def global_batch_size(self, size: int, val: int | None = None) -> Settings:
        """Samples of one step on all devices together: the local size, on the one device."""
        return self.local_batch_size(size, val)

    def input_resolution(self, side: int | Resolution) -> Settings:
        """One resolution for training and validation; of a pair (begin, end) the end validates."""
        pair = check_resolution("input resolution", side)
        return self._set("input_resolution", train_resolution=pair, val_resolution=pair[1])

    def train_resolution(self, side: int | Resolution) -> Settings:
        """Side of the training pictures; a pair (begin, end) makes it progressive."""
        pair = check_resolution("training resolution", side)
        return self._set("train_resolution", train_resolution=pair)

    def val_resolution(self, side: int) -> Settings:
        """Side of the validation pictures."""
        return self._set("val_resolution", val_resolution=check_int("val resolution", side, 1))

    def use_tf32(self, enabled: bool = True) -> Settings:
        """Allow TF32 for fp32 matrix products."""
        return self._set("use_tf32", use_tf32=check_bool("use_tf32", enabled))

    def __repr__(self) -> str:
        return f"Settings({self._record!r})"


def check_fraction(name: str, value: Any) -> float:
    """Return ``value`` as a fraction in (0, 1]; percentages get a hint."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1 < value <= 100:
        fail(ValueError, name, value, f"a fraction in (0, 1]; {value:g} % is {value / 100:g}")
    return check_real(name, value, 0.0, 1.0, open_low=True)
