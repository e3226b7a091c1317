"""``renaissance profile``: prints what was measured, and writes it to a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from renaissance import cli
from renaissance.program import profile
from renaissance.program.profile_report import Rates
from renaissance.runtime import library


@pytest.mark.skipif(not library.status().custom_calls, reason=library.status().message)
def test_a_small_net_is_profiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "measured_rates", lambda half: Rates(2e12, 3e9))
    table = tmp_path / "calls.csv"
    arguments = ["profile", "lenet", "--batch", "1", "--repeats", "1", "--most", "2"]
    assert cli.main([*arguments, "--csv", str(table)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("lenet, batch 1, fp32, fused lowering, on ")
    assert "at best 2 TFLOP/s, 3 GB/s" in shown and "DEEP_FWD_BWD" in shown
    rows = table.read_text().splitlines()
    assert rows[0] == "segment,call,us,bytes,flops,floor_us,lost_us"
    assert f"... and {len(rows) - 1 - 2} more" in shown
