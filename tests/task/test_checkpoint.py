"""A checkpoint is one file, whole or absent, and fits one plan only."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core.errors import FormatError
from renaissance.core.types import Region
from renaissance.lowering.state import ArrayState
from renaissance.task.checkpoint import load_checkpoint, save_checkpoint


def state(width: int = 3, *, moments: bool = True, scale: float = 1.0) -> ArrayState:
    weight = jnp.arange(2 * width, dtype=jnp.float32).reshape(2, width) * scale
    regions = {
        Region.W_FC_WEIGHT: {"fc1.weight": weight},
        Region.A_FC_WEIGHT: {"fc1.weight": weight.astype(jnp.float16)},
        Region.S_SCALAR_INT32: {"applied_steps": jnp.array([7], jnp.int32)},
    }
    if moments:
        regions[Region.M_FC_WEIGHT] = {"fc1.weight": weight / 3}
    return ArrayState(regions)


def test_every_tensor_comes_back_bit_for_bit(tmp_path):
    before = state(scale=0.1)
    path = save_checkpoint(tmp_path / "a.ckpt", before, epoch=4, extra={"seed": 3})
    checkpoint = load_checkpoint(path)
    after = checkpoint.restore(state(scale=0.0))
    assert (checkpoint.epoch, checkpoint.header["seed"]) == (4, 3)
    assert list(after) == list(before)
    for (_, name, old), (_, _, new) in zip(
        before.named_leaves(), after.named_leaves(), strict=True
    ):
        assert old.dtype == new.dtype, name
        assert np.array_equal(old, new), name


def test_the_file_is_an_npz_that_numpy_alone_reads(tmp_path):
    path = save_checkpoint(tmp_path / "a.npz", state(), epoch=1)
    with np.load(path) as archive:
        assert archive["S_SCALAR_INT32/applied_steps"].tolist() == [7]


def test_writing_replaces_the_old_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a.ckpt"
    save_checkpoint(path, state(), epoch=1)
    save_checkpoint(path, state(), epoch=2)
    assert load_checkpoint(path).epoch == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path / "a.ckpt", state(), epoch=1)

    def full(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(path, state(), epoch=2)
    monkeypatch.undo()
    assert load_checkpoint(path).epoch == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.ckpt"]


def test_another_shape_is_named_with_what_was_expected(tmp_path):
    path = save_checkpoint(tmp_path / "a.ckpt", state(3), epoch=1)
    expectation = r"W_FC_WEIGHT/fc1\.weight is float32\[2, 3\], expected float32\[2, 4\]"
    with pytest.raises(ValueError, match=expectation):
        load_checkpoint(path).restore(state(4))


def test_a_missing_and_a_foreign_tensor_are_named(tmp_path):
    with_moments = save_checkpoint(tmp_path / "a.ckpt", state(), epoch=1)
    without = save_checkpoint(tmp_path / "b.ckpt", state(moments=False), epoch=1)
    with pytest.raises(ValueError, match=r"M_FC_WEIGHT/fc1\.weight.*has no place"):
        load_checkpoint(with_moments).restore(state(moments=False))
    with pytest.raises(ValueError, match=r"no tensor M_FC_WEIGHT/fc1\.weight, expected float32"):
        load_checkpoint(without).restore(state())


@pytest.mark.parametrize("keep", [0, 10, 200, -1])
def test_a_truncated_file_says_so(tmp_path, keep):
    path = save_checkpoint(tmp_path / "a.ckpt", state(), epoch=1)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FormatError, match=r"a\.ckpt \(\d+ bytes\) is not a whole checkpoint"):
        load_checkpoint(path)


def test_a_changed_tensor_fails_the_hash(tmp_path):
    path = save_checkpoint(tmp_path / "a.ckpt", state(), epoch=1)
    with np.load(path) as archive:
        content = {key: archive[key] for key in archive.files}
    content["W_FC_WEIGHT/fc1.weight"] = content["W_FC_WEIGHT/fc1.weight"] + 1
    with path.open("wb") as file:
        np.savez(file, **content)
    with pytest.raises(FormatError, match="content hashes to"):
        load_checkpoint(path)


def test_an_npz_of_something_else_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(FormatError, match=r"other\.npz.*not a whole checkpoint"):
        load_checkpoint(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "none.ckpt")
