"""The benchmark script measures every contender, whatever the sizes."""

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
