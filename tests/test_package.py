import ast
import importlib
import inspect
import io
import pathlib
import pkgutil
import re
import subprocess
import sys
import tokenize
import tomllib

import keras
import pytest

import keras_transformer as kt

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MODULES = [
    module.name
    for module in pkgutil.walk_packages(kt.__path__, f"{kt.__name__}.")
    if not module.ispkg
]
NAMESPACES = [
    "",
    ".cli.grading",
    ".data",
    ".evaluation",
    ".interchange",
    ".layers",
    ".losses",
    ".metrics",
    ".models",
    ".optimizers",
    ".plots",
    ".tasks",
    ".tasks.pretrained",
    ".training",
]

KERAS = [keras.Model, keras.Metric, keras.callbacks.Callback, keras.utils.PyDataset]

every_namespace = pytest.mark.parametrize("namespace", [kt.__name__ + name for name in NAMESPACES])


def python(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, **kwargs
    )


def code_of(page):
    """The blocks of Python code of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
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
    heavy |= {"tokenizers"}
    heavy |= {"matplotlib", "sklearn", "transformers", "safetensors", "google"}
    assert not third_party & heavy
    if keras.backend.backend() != "tensorflow":
        assert "tensorflow" not in third_party


@pytest.mark.slow
def test_the_library_use_in_readme_and_docs_runs(tmp_path, monkeypatch, capsys):
    names = {"__name__": "__main__"}  # the second page continues the first

    def run(page):
        *_, code = code_of(page)
        exec(compile(code, page, "exec"), names)

    monkeypatch.chdir(tmp_path)
    run("README.md")
    assert len(eval(capsys.readouterr().out.splitlines()[-1])) == 3
    assert (tmp_path / "dates.keras").exists()
    run("docs/training.md")
    assert kt.check_file(tmp_path / "more-dates.keras").task == "Translator"


@pytest.mark.once
@pytest.mark.parametrize("page", ["training.md", "training.zh-CN.md"])
def test_the_curves_in_docs_are_those_of_all_runs_against_the_seconds_of_training(
    tmp_path, monkeypatch, page
):
    from matplotlib import pyplot as plt

    for name, rows in (("a", ["0,3.0,10.0,2.5", "1,2.0,20.0,1.5"]), ("b", ["0,3.5,40.0,3.5"])):
        (tmp_path / "runs" / name).mkdir(parents=True)
        text = "\n".join(["epoch,loss,seconds,val_loss", *rows, ""])
        (tmp_path / "runs" / name / "history.csv").write_text(text, "utf-8")
    (code,) = [block for block in code_of(f"docs/{page}") if "history.csv" in block]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {})
    lines = [line.get_xydata().tolist() for line in plt.gca().get_lines()]
    labels = [line.get_label() for line in plt.gca().get_lines()]
    plt.close()
    assert labels == ["a", "b"] and (tmp_path / "curves.png").exists()
    assert lines == [[[10.0, 2.5], [30.0, 1.5]], [[40.0, 3.5]]]


@pytest.mark.parametrize("page", ["training.md", "training.zh-CN.md"])
def test_the_scores_in_docs_are_those_of_saved_models(
    small_tasks, tmp_path, monkeypatch, capsys, page
):
    for folder, task in (("labels", "classifier"), ("tags", "tagger"), ("language", "generator")):
        (tmp_path / "runs" / folder).mkdir(parents=True)
        small_tasks[task].save(tmp_path / "runs" / folder / "model.keras")
    texts = ["the dog barks", "a small cat", "the dog sees a cat"]
    predicted = [each.label for each in small_tasks["classifier"].classify(texts)]
    others = {"yes": "no", "no": "yes"}
    labels = [others[predicted[0]], *predicted[1:]]  # two of three
    rows = "".join(f"{label}\t{text}\n" for label, text in zip(labels, texts, strict=True))
    (tmp_path / "test.tsv").write_text(f"label\tsentence\n{rows}", "utf-8")
    (tagged,) = small_tasks["tagger"].tag(["the dog sees a cat"])
    tags = [tag for _, tag in tagged]
    tags[:2] = ["NOUN" if tag == "VERB" else "VERB" for tag in tags[:2]]  # three of five
    words = [
        f"{number}\t{word}\t_\t{tag}" + 6 * "\t_"
        for number, ((word, _), tag) in enumerate(zip(tagged, tags, strict=True), start=1)
    ]
    (tmp_path / "test.conllu").write_text("\n".join([*words, "", ""]), "utf-8")
    (tmp_path / "test.txt").write_text("the dog\nsees\n", "utf-8")
    (code,) = [block for block in code_of(f"docs/{page}") if "classification_report" in block]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {})
    out = capsys.readouterr().out
    assert re.findall(r"accuracy +(\S+) +(\d+)", out) == [("0.67", "3"), ("0.60", "5")]
    (score,) = small_tasks["generator"].score(["the dog\nsees\n"])
    perplexity, bits = map(float, out.splitlines()[-1].split())
    assert perplexity == pytest.approx(score.perplexity, rel=1e-5)
    assert bits == pytest.approx(score.bits_per_character, rel=1e-5)


UNCHANGED = """
import os, pkgutil, signal, sys, threading, warnings
import keras
import keras.src.trainers.data_adapters

def state():
    found = {"environment": dict(os.environ), "policy": keras.config.dtype_policy().name}
    found["signals"] = [signal.getsignal(n) for n in signal.valid_signals()]
    found["threads"], found["filters"] = threading.active_count(), list(warnings.filters)
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] == "keras"]:
        for cls in [value for value in vars(module).values() if isinstance(value, type)]:
            if cls.__module__.split(".")[0] == "keras":
                found[f"{cls.__module__}.{cls.__qualname__}"] = dict(vars(cls))
    return found

before = state()
import keras_transformer as kt
for module in pkgutil.walk_packages(kt.__path__, "keras_transformer."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
for name in kt.__all__:
    getattr(kt, name)
after = state()
assert len(before) > 500, len(before)
print([name for name in before if before[name] != after[name]])
"""


@pytest.mark.slow
def test_importing_the_package_changes_no_class_of_keras_and_nothing_process_wide():
    result = python(UNCHANGED, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[]"


SCRIPTS = [p for p in sorted((ROOT / "scripts").glob("*.py")) if "__main__" in p.read_text("utf-8")]


@pytest.mark.parametrize("script", [path.name for path in SCRIPTS])
def test_every_script_answers_help(inside, script):
    result = inside([sys.executable, ROOT / "scripts" / script, "--help"])
    assert result.returncode == 0 and "usage" in result.stdout


def test_every_public_keras_class_is_registered_under_the_package_name():
    classes = [value for value in map(kt.__getattr__, kt.__all__) if isinstance(value, type)]
    kinds = (keras.layers.Layer, keras.losses.Loss, keras.metrics.Metric)
    kinds += (keras.optimizers.schedules.LearningRateSchedule,)
    public = [cls for cls in classes if issubclass(cls, kinds)]
    assert len(public) > 12
    for cls in public:
        name = keras.saving.get_registered_name(cls)
        assert name == f"keras_transformer>{cls.__name__}"


def is_ours(value):
    return (getattr(value, "__module__", None) or "").startswith(kt.__name__)


def is_public(method):
    """Not private, and not declared by Keras as `call` and `on_epoch_end` are."""
    declared = any(hasattr(cls, method) for cls in KERAS)
    return method == "__init__" or not (method.startswith("_") or declared)


def public_callables(namespace):
    """The functions, constructors and methods that a user reaches through a namespace, by name."""
    module = importlib.import_module(namespace)
    for name, value in ((name, getattr(module, name)) for name in dir(module)):
        if name.startswith("_") or not is_ours(value):
            continue
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method in filter(is_public, dir(value)):
                member = inspect.getattr_static(value, method)
                function = getattr(member, "__func__", None) or getattr(member, "fget", member)
                if inspect.isfunction(function) and is_ours(function):
                    yield f"{name}.{method}", function


@every_namespace
def test_public_functions_have_type_hints(namespace):
    untyped = []
    for name, function in public_callables(namespace):
        signature = inspect.signature(function)
        for parameter in signature.parameters.values():
            named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            bound = parameter.name in ("self", "cls")
            if named and not bound and parameter.annotation is parameter.empty:
                untyped.append(f"{name}({parameter.name})")
        if not name.endswith(".__init__") and signature.return_annotation is signature.empty:
            untyped.append(f"{name} ->")
    assert not untyped


@every_namespace
def test_public_functions_have_a_docstring(namespace):
    functions = [pair for pair in public_callables(namespace) if not pair[0].endswith("__init__")]
    assert not [name for name, function in functions if not inspect.getdoc(function)]


def test_the_api_reference_shows_every_module():
    pages = [path.read_text("utf-8") for path in (ROOT / "docs" / "api").glob("*.md")]
    shown = re.findall(r"^\.\. automodule:: (\S+)$", "\n".join(pages), re.MULTILINE)
    modules = {name for name in MODULES if ".cli." not in name or ".grading." in name}
    modules.add("keras_transformer.tasks.pretrained")
    assert sorted(shown) == sorted(modules)  # --help documents commands


def imported_by(path):
    """The package's own modules that a file imports, those within packages by the package."""
    folder = [kt.__name__, *path.parent.relative_to(PACKAGE).parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level or node.module.partition(".")[0] != kt.__name__, path
        if isinstance(node, ast.ImportFrom) and node.level:
            module = folder[: len(folder) - node.level + 1]
            module += node.module.split(".") if node.module else []
            yield from module[1:2] or [alias.name for alias in node.names]


def test_no_module_imports_one_that_comes_later_in_contributing():
    table = re.findall(
        r"^\| (`.+`) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE
    )
    order = re.findall(r"`(\w+)`", ", ".join(table))
    seen = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if name != "__init__":
            seen.add(name)
            later = order[order.index(name) + 1 :]
            assert not set(imported_by(path)) & set(later), path.name
    assert seen == set(order)


ALONE = {
    "backend": {"atomic", "checks"},
    "layers": {"backend", "checks", "ids"},
    "models": {"backend", "checks", "layers"},
    "generation": {"backend", "checks", "ids", "layers", "losses"},
}


@pytest.mark.parametrize("folder", ALONE)
def test_a_folder_of_the_papers_parts_imports_few_others(folder):
    paths = sorted((PACKAGE / folder).glob("*.py"))
    others = {name for path in paths for name in imported_by(path)} - {folder}
    assert others <= ALONE[folder]


PAPER = [PACKAGE / f"{name}.py" for name in ("losses", "metrics", "optimizers")]
PAPER += [path for name in ("layers", "models") for path in (PACKAGE / name).glob("*.py")]


def code_lines(path):
    """The tokens of a file by line, without docstrings, comments and blank lines."""
    text = path.read_text("utf-8")
    docs, lines = set(), {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            docs |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            for number in set(range(token.start[0], token.end[0] + 1)) - docs:
                lines.setdefault(number, []).append(token.string)
    return lines


NOT_CODE = {
    getattr(tokenize, name)
    for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")
}


@pytest.mark.once
def test_the_modules_of_the_paper_are_short_and_name_no_backend():
    code = {path: code_lines(path) for path in PAPER}
    assert sum(map(len, code.values())) <= 1100
    backends = re.compile("tensorflow|jax|torch|xla", re.IGNORECASE)
    named = [
        f"{path.name}:{number}"
        for path, lines in code.items()
        for number, tokens in lines.items()
        if backends.search(" ".join(tokens))
    ]
    assert not named


def test_type_checkers_see_that_the_package_is_typed():
    assert (pathlib.Path(kt.__file__).parent / "py.typed").exists()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["keras_transformer"]


def test_the_console_command_exists():
    (entry,) = PROJECT["project"]["scripts"].values()
    module, function = entry.split(":")
    assert callable(getattr(importlib.import_module(module), function))


def name_of(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def test_the_lean_requirements_are_the_dependencies_without_tensorflow():
    lines = (ROOT / "requirements-lean.txt").read_text("utf-8").splitlines()
    lean = {line for line in lines if not line.startswith("#")}
    dependencies = set(PROJECT["project"]["dependencies"])
    assert lean < dependencies
    left_out = {"importlib_resources", "keras-nlp", "tensorflow", "tensorflow-datasets"}
    assert {name_of(line) for line in dependencies - lean} == left_out


DISTRIBUTIONS = {  # where the name of an import says another one, or comes with another one
    "google": "protobuf",
    "keras_hub": "keras-nlp",
    "pydantic": "fastapi",
    "sklearn": "scikit-learn",
    "starlette": "fastapi",
    "tensorflow_text": "keras-nlp",
}


def third_party(path):
    """The packages that a file imports and that belong neither to Python nor to this project."""
    ours = {file.stem for file in (ROOT / "scripts").iterdir()} | {kt.__name__}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("imported", "Library"):
            names = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
        yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names - ours


@pytest.mark.once
@pytest.mark.parametrize("folder", ["keras_transformer", "scripts"])
def test_every_package_that_is_imported_is_declared(folder):
    extras = PROJECT["project"]["optional-dependencies"]
    if folder == "keras_transformer":  # a user does not install what the tests need
        extras = {name: lines for name, lines in extras.items() if name not in ("dev", "test")}
    required = [PROJECT["project"]["dependencies"], *extras.values()]
    declared = {name_of(line).replace("_", "-") for lines in required for line in lines}
    imported = set().union(*map(third_party, (ROOT / folder).rglob("*.py")))
    assert {DISTRIBUTIONS.get(name, name).replace("_", "-") for name in imported} <= declared
    assert {"keras", "numpy"} <= imported


def test_extras_refer_to_this_distribution_and_not_to_its_namesake():
    extras = PROJECT["project"]["optional-dependencies"].values()
    own = {name_of(line) for lines in extras for line in lines if "[" in line}
    assert own == {PROJECT["project"]["name"]} == {"keras3-transformer"}


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {kt.__version__}\n" in citation
