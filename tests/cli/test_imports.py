"""Imports of a process: commands that compute nothing answer before Keras could start."""

import os
import subprocess
import sys

import pytest

from keras_transformer import backend
from keras_transformer.cli import COMMANDS
from keras_transformer.tasks import pretrained

BACKENDS = {"jax", "tensorflow", "torch"}
HEAVY = {"jax", "keras", "keras_hub", "matplotlib", "tensorflow", "torch"}
COMMAND = """
import sys
from keras_transformer.cli import main
try:
    main(sys.argv[1:])
finally:
    print("imported", *(name for name in sys.modules if "." not in name))
"""
HELPS = """
import contextlib, io, sys
from keras_transformer.cli import main
for command in sys.argv[1:]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([command, "--help"])
    assert f"usage: keras-transformer {command}" in printed.getvalue()
print("imported", *sys.modules)
"""
UNNEEDED = "IPython keras_hub matplotlib pandas sacrebleu sklearn tensorflow_datasets transformers"
LOAD = "print(keras.saving.load_model(sys.argv[1]).name)"


def output_of(code, *arguments, **variables):
    """The last line that a new process prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    options = {"env": {**os.environ, **variables}, "text": True, "timeout": 300}
    result = subprocess.run(command, capture_output=True, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


@pytest.mark.once
@pytest.mark.parametrize("arguments", ["--help", "--version", "check dates"])
def test_a_command_that_computes_nothing_imports_no_backend(arguments):
    imported = output_of(COMMAND, *arguments.split()).split()
    assert imported[0] == "imported" and "keras_transformer" in imported
    assert not HEAVY & set(imported)


@pytest.mark.once
def test_the_help_of_no_command_imports_a_backend():
    imported = output_of(HELPS, *COMMANDS).split()
    assert imported[0] == "imported" and "keras_transformer.cli.average" in imported
    assert not HEAVY & set(imported)


@pytest.mark.once
def test_importing_the_package_imports_neither_keras_nor_numpy():
    code = "import sys, keras_transformer; print(*(n for n in sys.modules if '.' not in n))"
    assert not {*HEAVY, "numpy"} & set(output_of(code).split())


@pytest.mark.slow
def test_a_translation_imports_no_other_backend_and_no_library_that_it_does_not_need(tmp_path):
    variables = {}
    if backend.name() != "tensorflow":  # a package of its name, since it need not be installed
        (tmp_path / "tensorflow.py").write_text("raise SystemExit('Something imports TensorFlow.')")
        variables["PYTHONPATH"] = str(tmp_path)
    imported = output_of(COMMAND, "translate", "dates", "May 3, 2021", **variables).split()
    assert {"keras", "keras_transformer", backend.name()} <= set(imported)
    assert not {*UNNEEDED.split(), *BACKENDS - {backend.name()}} & set(imported)


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    ["import sys, keras, keras_transformer", "import sys, keras_transformer, keras\n{}.Translator"],
    ids=["keras first", "keras second"],
)
def test_keras_loads_a_task_whichever_was_imported_first(imports):
    code = f"{imports.format('keras_transformer')}\n{LOAD}"
    assert output_of(code, pretrained.find("dates")) == "translator"
