"""Settings are a frozen record behind a facade that checks every value."""

from __future__ import annotations

import dataclasses

import pytest

from renaissance.core.errors import PhaseError
from renaissance.core.settings import GlobalSettings, Settings, check_fraction


def test_the_chain_builds_one_frozen_record():
    settings = Settings().use_cpu().amp().manual_seed(123).local_batch_size(200).use_tf32()
    record = settings.record
    assert record == GlobalSettings(device="cpu", amp=True, seed=123, batch_size=200, use_tf32=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.seed = 4  # type: ignore[misc]


def test_a_record_taken_earlier_does_not_change():
    settings = Settings().manual_seed(1)
    before = settings.record
    settings.manual_seed(2)
    assert (before.seed, settings.record.seed) == (1, 2)


def test_a_pair_makes_the_resolution_progressive():
    record = Settings().input_resolution((16, 32)).record
    assert record.is_progressive
    assert (record.train_resolution, record.val_resolution) == ((16, 32), 32)
    assert not Settings().input_resolution(28).record.is_progressive


def test_auto_seed_is_kept_in_the_record_so_that_a_run_can_be_repeated():
    seeds = {Settings().auto_seed().record.seed for _ in range(4)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_the_record_is_plain_values():
    assert Settings().use_gpu(3).record.as_dict()["gpu_ids"] == (3,)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda s: s.manual_seed(-1), ValueError, "seed is -1"),
        (lambda s: s.manual_seed(2**64), ValueError, "18446744073709551615"),
        (lambda s: s.manual_seed(1.5), TypeError, "seed is 1.5"),
        (lambda s: s.local_batch_size(0), ValueError, "batch size is 0"),
        (lambda s: s.local_batch_size(8, val=-2), ValueError, "validation batch size is -2"),
        (lambda s: s.use_gpu(0, 1), ValueError, "one device"),
        (lambda s: s.amp(1), TypeError, "True or False"),
        (lambda s: s.input_resolution((1, 2, 3)), ValueError, "pair"),
        (lambda s: s.train_resolution((8, 0)), ValueError, "end is 0"),
    ],
)
def test_wrong_values_are_named(call, error, words):
    settings = Settings()
    with pytest.raises(error, match=words):
        call(settings)
    assert settings.record == GlobalSettings()


def test_locked_settings_say_who_relies_on_them():
    settings = Settings()
    settings.lock("DeepLearningTask 'digits'")
    with pytest.raises(PhaseError, match=r"amp comes too late.*'digits'.*PLANNING"):
        settings.amp()


def test_a_percentage_is_taken_for_what_it_is():
    assert check_fraction("target", 0.98) == 0.98
    with pytest.raises(ValueError, match="98 % is 0.98"):
        check_fraction("target", 98)
