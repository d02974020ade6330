"""The benchmark script measures every contender, whatever the sizes."""

import json
import subprocess
import sys

import pytest

from programs import ROOT

SCRIPT = ROOT / "scripts" / "benchmark.py"
SIZES = "--num-layers 1 --d-model 8 --num-heads 2 --d-ff 16 --vocabulary-size 30 --length 4"
CONTENDERS = ["ours", "ours-source", "ours-layers", "ours-logits", "keras-hub"]


@pytest.mark.slow
def test_decoding_is_measured_with_several_batch_sizes():
    command = [sys.executable, SCRIPT, "generate", *SIZES.split(), "--batches", "3x2", "1x2"]
    command += ["--rounds", "1", "--warmup", "0", "--contenders", *CONTENDERS]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    for name in CONTENDERS:
        for batch_size in (3, 1):
            assert f"| {name} | {batch_size} | 2 |" in result.stdout


@pytest.mark.slow
def test_real_sentences_are_translated_as_by_ctranslate2(tmp_path):
    pytest.importorskip("ctranslate2", reason="needs ctranslate2")
    dates = ["May 3, 2021", "", "13 Oct 1987", "2019/04/22"]
    (tmp_path / "dates.txt").write_text("\n".join(dates) + "\n", encoding="utf-8")
    command = [sys.executable, SCRIPT, "translate", "dates", "--texts", tmp_path / "dates.txt"]
    command += ["--beams", "1", "4", "--separate", "1", "--rounds", "1"]
    contenders = ["ours", "engine", "ctranslate2"]
    command += ["--contenders", *contenders]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    rows = [line.split(" | ") for line in result.stdout.splitlines() if line.startswith("| ")]
    expected = [[f"| {name}", beams, "3 |"] for beams in "14" for name in contenders]
    assert [row[:2] + row[4:] for row in rows[1:]] == expected
    ratios = [float(row[3]) for row in rows[1:]]
    assert ratios[0] == ratios[3] == 1 and min(ratios) > 0


@pytest.mark.slow
@pytest.mark.once
def test_epochs_of_both_contenders_are_measured(tmp_path):
    pairs = [("a b c", "c b a"), ("b a", "a b"), ("c", "c")] * 40
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        (tmp_path / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, SCRIPT, "epoch", "--vocabulary-size", "12", "--rounds", "2"]
    command += ["--source", tmp_path / "source", "--target", tmp_path / "target", "--separate", "1"]
    command += ["--json", tmp_path / "epoch.json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "epoch.json").read_text("utf-8"))["rows"]
    assert [row["name"] for row in rows] == ["ours", "keras-hub"]
    assert all(len(row["seconds"]) == 2 and row["low"] <= row["median"] for row in rows)
    assert rows[0]["ratio"] == pytest.approx(rows[1]["median"] / rows[0]["median"])
    assert "120 pairs, 360 target tokens" in result.stdout
