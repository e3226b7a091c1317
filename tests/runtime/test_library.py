"""The native library: found, checked before it registers, equal to the package's tables."""

from __future__ import annotations

import ctypes
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from renaissance.core import philox
from renaissance.core.errors import NativeError
from renaissance.lowering.calls import targets
from renaissance.runtime import library

if not library.status().loaded:
    pytest.skip(library.status().message, allow_module_level=True)


def native_blocks(counters: np.ndarray, key: int) -> np.ndarray:
    counters = np.ascontiguousarray(counters, np.uint32)
    words = np.empty_like(counters)
    library.load().rn_philox4x32(
        counters.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_size_t(counters.size // 4),
        ctypes.c_uint64(key),
        words.ctypes.data_as(ctypes.c_void_p),
    )
    return words


def crc(data: bytes, start: int = 0) -> int:
    function = library.load().rn_crc32
    function.restype = ctypes.c_uint32
    return function(ctypes.c_uint32(start), data, ctypes.c_size_t(len(data)))


def test_philox_gives_the_published_answer() -> None:
    words = native_blocks(np.zeros((1, 4), np.uint32), 0)
    assert [f"{w:08x}" for w in words[0]] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


@pytest.mark.parametrize("key", [0, 1, 0xDEADBEEF, 2**64 - 1])
def test_philox_equals_the_python_twin_bit_for_bit(key: int) -> None:
    counters = np.random.default_rng(key % 97).integers(0, 2**32, (257, 4), dtype=np.uint32)
    np.testing.assert_array_equal(native_blocks(counters, key), philox.philox4x32(counters, key))


@pytest.mark.parametrize("count", [1, 3, 4, 5, 1023])
def test_the_uniform_custom_call_equals_the_python_twin(count: int) -> None:
    library.register("cpu")
    result = jax.ShapeDtypeStruct((count,), jnp.float32)
    call = jax.ffi.ffi_call(targets.PHILOX_UNIFORM.name, result)
    where = {"sample": 5, "operation": 7, "step": 11}
    attributes = {name: np.int64(value) for name, value in where.items()}
    with jax.default_device(jax.devices("cpu")[0]):  # the one target that is the host's alone
        drawn = jax.jit(lambda: call(seed=np.int64(123), **attributes))()
    np.testing.assert_array_equal(np.asarray(drawn), philox.uniform(123, count, **where))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 1000])
def test_the_checksum_is_zlibs_and_can_be_continued(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    assert crc(data) == zlib.crc32(data)
    assert crc(data[size // 3 :], crc(data[: size // 3])) == zlib.crc32(data)


def test_the_table_of_targets_and_the_library_are_equal() -> None:
    held = library.targets(library.load())
    assert set(held) == {target.name for target in targets.TARGETS}
    for target in targets.TARGETS:
        assert "cpu" in held[target.name], "every target has a host implementation"
        assert ("CUDA" in held[target.name]) == target.cuda, target.name


def test_a_library_for_a_newer_jaxlib_is_refused_before_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "running_ffi_version", lambda: (0, 0))
    library._open.cache_clear()
    try:
        state = library.status()
        assert state.loaded and not state.custom_calls
        assert "the running jaxlib offers 0.0" in state.message
        with pytest.raises(NativeError, match=r"install again"):
            library.register("cpu")
    finally:
        library._open.cache_clear()


def test_a_missing_library_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv(library.PATH_VARIABLE, f"{tmp_path}/nowhere.so")
    library._open.cache_clear()
    try:
        assert not library.status().loaded
        with pytest.raises(NativeError, match=r"nowhere\.so cannot be loaded"):
            library.load()
    finally:
        library._open.cache_clear()
