"""Without a private interface of another package, the plain way computes the same."""

import ast
import builtins
import pathlib
import sys

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import backend, training
from keras_transformer.backend import private
from keras_transformer.training.estimates import memory_of_step

MODULES = {  # by the backend that uses them
    "torch._guards": "torch",
    "torch._subclasses": "torch",
    "torch.fx.experimental.proxy_tensor": "torch",
    "torch.utils._python_dispatch": "torch",
    "keras.src.trainers.data_adapters": "tensorflow",
    "keras.src.saving.serialization_lib": "any",
}
ATTRIBUTES = {
    "tracing": "torch",
    "TracingContext": "torch",
    "FakeTensorMode": "torch",
    "make_fx": "torch",
    "_disable_current_modes": "torch",
    "PyDatasetAdapter": "tensorflow",
    "SafeModeScope": "any",
    "_flatten_layers": "any",
    "_remat_mode": "any",
    "_layers": "any",
}
IDS = np.array([[2, 5, 6, 7], [2, 6, 5, 4]])


@pytest.fixture
def hide(monkeypatch):
    """Hides a module, or an attribute from the lookup of this package: Keras needs its own."""

    for adapter in private.data_adapters():  # which `numbers` changes
        monkeypatch.setattr(adapter, "get_tf_dataset", adapter.get_tf_dataset)

    def apply(name):
        def look_up(owner, asked, *default):
            if asked == name:
                raise AttributeError(asked)
            return builtins.getattr(owner, asked, *default)

        if name in MODULES:
            monkeypatch.setitem(sys.modules, name, None)
        else:
            monkeypatch.setattr(private, "getattr", look_up, raising=False)
        private.notice.cache_clear()

    yield apply
    private.notice.cache_clear()


def numbers(folder):
    """Losses with rematerialization and LoRA, answers of a loaded file, and an estimate."""
    keras.utils.set_random_seed(0)
    tokenizer = kt.train_tokenizer(["abc def"], model_type="char")
    with keras.RematScope(mode="list_of_layers", layer_names=["block_1", "block_2"]):
        model = kt.LanguageModel(
            tokenizer.vocabulary_size(), num_layers=3, d_model=8, num_heads=2, d_ff=8, dropout=0.3
        )
    training.enable_lora(model, 1)
    model.compile(
        keras.optimizers.Adam(0.1), kt.TokenCrossEntropy(), run_eagerly=not backend.prefers_jit()
    )
    backend.leave_pipelines_untuned.__wrapped__()
    losses = [float(model.train_on_batch({"token_ids": IDS}, IDS)) for _ in range(2)]
    assert losses[0] != losses[1]
    memory = memory_of_step(model, (2, 4))
    kt.TextGenerator(model, tokenizer).save(folder / "model.keras")
    loaded = kt.load(folder / "model.keras")
    loaded.expect_many()  # so that PyTorch records its steps at once
    answers = [loaded.generate(["ab", "f"], 5), loaded.generate(["ab", "f"], 5, seed=1)]
    return losses, answers, memory


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return numbers(tmp_path_factory.mktemp("before"))


NAMES = [*MODULES, *ATTRIBUTES]
QUICK = ("SafeModeScope", "torch._guards" if backend.name() == "torch" else "_flatten_layers")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in NAMES]
)
def test_training_and_decoding_need_no_private_interface(before, tmp_path, hide, capfd, name):
    hide(name)
    after = numbers(tmp_path)
    assert after[:2] == before[:2]
    assert (after[2] == before[2]) == (name != "_remat_mode")  # an estimate alone
    errors = capfd.readouterr().err
    used = (MODULES | ATTRIBUTES)[name] in ("any", backend.name())
    lines = [line for line in errors.splitlines() if "has no" in line and name in line]
    several = {"keras.src.trainers.data_adapters": 3, "torch._guards": 2}  # names of one module
    assert len(lines) <= several.get(name, 1) and bool(lines) == used, errors


@pytest.mark.parametrize("name", ["_value", "_layout"])
def test_variables_have_other_values_for_a_while(numpy, hide, name):
    variable = keras.Variable(np.ones(2), dtype="float32")
    for _ in range(2):
        with private.values_replaced([variable], [keras.ops.convert_to_tensor([2.0, 3.0])]):
            np.testing.assert_array_equal(numpy(variable.value), [2, 3])
        np.testing.assert_array_equal(numpy(variable.value), [1, 1])
        hide(name)


@pytest.mark.once
def test_only_one_module_uses_private_interfaces_of_other_packages():
    paths = [*pathlib.Path(kt.__file__).parent.rglob("*.py")]
    trees = {path: [*ast.walk(ast.parse(path.read_text("utf-8")))] for path in paths}
    own = {"_asdict", "_replace", "_exit"}  # public names of named tuples and of os; argparse:
    own |= {"_option_string_actions"}
    definitions = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    for nodes in trees.values():
        own |= {n.name for n in nodes if isinstance(n, definitions)}
        stored = [n for n in nodes if isinstance(getattr(n, "ctx", None), ast.Store)]
        own |= {getattr(n, "attr", None) or getattr(n, "id", None) for n in stored}
    own -= {"_value", "_layout"}
    for path, nodes in trees.items():
        used = {n.attr for n in nodes if isinstance(n, ast.Attribute) and n.attr[:1] == "_"}
        used = {name for name in used - own if not name.startswith("__")}
        imports = [n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
        imports += [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
        places = ("keras.src", "tensorflow.python", "jax.experimental", "jax._src", "torch._")
        used |= {name for name in imports if name.startswith(places)}
        assert path.name == "private.py" or not used, path
