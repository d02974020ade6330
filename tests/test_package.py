import pathlib
import re
import subprocess
import sys

import keras
import pytest

import keras_transformer as kt

ROOT = pathlib.Path(__file__).parents[1]


def python(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, **kwargs
    )


def test_importing_the_package_imports_no_library_that_few_functions_need():
    code = """
import sys, keras
before = set(sys.modules)
import keras_transformer
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - {"keras_transformer"} - set(sys.stdlib_module_names)))
"""
    result = python(code, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    third_party = set(eval(result.stdout.splitlines()[-1]))
    heavy = {"keras_hub", "sentencepiece", "sacrebleu", "tensorflow_datasets", "tensorflow_text"}
    assert not third_party & heavy
    if keras.backend.backend() != "tensorflow":
        assert "tensorflow" not in third_party


def test_the_library_use_in_the_readme_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    result = python(code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(eval(result.stdout.splitlines()[-1])) == 3
    assert (tmp_path / "dates.keras").exists()


SCRIPTS = [p for p in sorted((ROOT / "scripts").glob("*.py")) if "__main__" in p.read_text("utf-8")]


@pytest.mark.parametrize("script", [path.name for path in SCRIPTS])
def test_every_script_answers_help(inside, script):
    result = inside([sys.executable, ROOT / "scripts" / script, "--help"])
    assert result.returncode == 0 and "usage" in result.stdout


def test_every_public_keras_class_is_registered_under_the_package_name():
    classes = [value for value in vars(kt).values() if isinstance(value, type)]
    kinds = (keras.layers.Layer, keras.losses.Loss, keras.metrics.Metric)
    kinds += (keras.optimizers.schedules.LearningRateSchedule,)
    public = [cls for cls in classes if issubclass(cls, kinds)]
    assert len(public) > 12
    for cls in public:
        name = keras.saving.get_registered_name(cls)
        assert name == f"keras_transformer>{cls.__name__}"
