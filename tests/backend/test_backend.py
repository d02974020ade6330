"""The fast way of each backend computes what the plain way does."""

import concurrent.futures
import importlib
import inspect
import platform
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.backend import compilation, kernels, process, recording
from keras_transformer.layers.attention import scaled_dot_product_attention
from keras_transformer.layers.masks import add_look_ahead, per_head
from keras_transformer.models import LanguageModel

T, F = True, False


# Attention by the backend's kernel

# For 2 sentences of 5 keys, 2 heads, 4 queries. Some rows allow nothing.
PADDING = np.array([[[[T, T, T, T, T]]], [[[T, T, F, F, F]]]])
EMPTY_SENTENCE = np.array([[[[T, T, T, F, F]]], [[[F, F, F, F, F]]]])
ROWS = np.array([[T, T, F, T, T], [F, F, F, F, F], [F, T, F, F, T], [F, F, F, F, T]])
PER_HEAD = np.random.default_rng(3).random((2, 2, 4, 5)) < 0.4
MASKS = {
    "no_mask": None,
    "padding": PADDING,
    "empty_sentence": EMPTY_SENTENCE,
    "rows": ROWS,
    "one_for_all": ROWS[np.newaxis, np.newaxis],
    "per_head": PER_HEAD,
}


def heads(normal, *lengths, dtype="float32"):
    """Queries, keys and values of 2 heads of width 4."""
    shapes = [(2, 2, length, 4) for length in lengths]
    arrays = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    return [ops.convert_to_tensor(array, dtype) for array in arrays]


@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_fused_attention_equals_the_formula(numpy, normal, mask, causal):
    assert mask is None or mask is PADDING or not mask.any(axis=-1).all()
    query, key, value = heads(normal, 4, 5, 5)
    both = add_look_ahead(mask, 4, 5) if causal else mask
    expected, _ = numpy(scaled_dot_product_attention(query, key, value, both))
    given = (None, True) if causal and mask is None else (per_head(both), False)
    output = numpy(backend.fused_attention(query, key, value, *given))
    np.testing.assert_allclose(output, expected, atol=1e-5)
    if mask is not None:
        allowed = np.broadcast_to(mask, (2, 2, 4, 5)) & (np.tri(4, 5, dtype=bool) | (not causal))
        np.testing.assert_array_equal(output[~allowed.any(axis=-1)], 0)


@pytest.mark.parametrize("lengths", [(4, 4), (5, 4), (4, 5)], ids=["T=S", "T>S", "T<S"])
def test_the_causal_mask_of_the_kernel_begins_at_the_first_key(numpy, normal, lengths):
    query, key, value = heads(normal, lengths[0], lengths[1], lengths[1])
    mask = add_look_ahead(None, *lengths)
    expected, _ = numpy(scaled_dot_product_attention(query, key, value, mask))
    output = numpy(backend.fused_attention(query, key, value, is_causal=True))
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_a_gpu_gets_masks_and_lengths_that_its_kernel_takes(normal, monkeypatch):
    def note(query, key, value, mask=None, flash_attention=None, **options):
        noted.append((mask if mask is None else tuple(mask.shape), flash_attention))
        return query

    noted, allowed = [], [None]
    monkeypatch.setattr(kernels, "on_accelerator", lambda: backend.name() == "jax")
    monkeypatch.setattr(ops, "dot_product_attention", note)
    monkeypatch.setattr(keras.config, "is_flash_attention_enabled", lambda: allowed[0])
    odd, even = heads(normal, 4, 5, 5), heads(normal, 4, 4, 4)
    backend.fused_attention(*odd, PADDING)
    backend.fused_attention(*even, PADDING[..., :4])
    backend.fused_attention(*odd)
    allowed[0] = False  # keras.config.disable_flash_attention()
    backend.fused_attention(*even, PADDING[..., :4])
    backend.fused_attention(*even)
    if backend.name() == "jax":  # the row of every query; cuDNN has no gradient for odd lengths
        masks = [(2, 1, 4, 5), (2, 1, 4, 4), None, (2, 1, 4, 4), None]
        assert noted == list(zip(masks, [False, None, None, False, False], strict=True))
    else:
        masks = [(2, 1, 1, 5), (2, 1, 1, 4), None, (2, 1, 1, 4), None]
        assert noted == list(zip(masks, [None, None, None, False, False], strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_where_there_is_a_kernel_for_a_dtype_it_computes_in_it(numpy, normal, dtype):
    if not backend.has_fused_attention(dtype):
        pytest.skip(f"no kernel for {dtype}")
    query, key, value = heads(normal, 4, 5, 5, dtype=dtype)
    output = backend.fused_attention(query, key, value, PADDING)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    expected, _ = numpy(scaled_dot_product_attention(query, key, value, PADDING))
    np.testing.assert_allclose(numpy(output), expected, atol=1e-5 if dtype == "float32" else 0.05)


# Linear


@pytest.fixture
def pair(normal):
    """A `Linear` and a Dense with the same weights, of 3 units over 4 features."""

    def pair(**kwargs):
        layers = [kind(3, **kwargs) for kind in (backend.Linear, keras.layers.Dense)]
        for layer in layers:
            layer.build((None, None, 4))
            layer.set_weights([normal(4, 3, seed=1), normal(3, seed=2)])
        return layers

    return pair


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (2, 3, 5, 4), (0, 5, 4)], ids=str)
def test_linear_equals_dense(numpy, normal, pair, shape):
    linear, dense = pair(activation="tanh")
    x = normal(*shape)
    output, expected = numpy([linear(x), dense(x)])
    assert output.shape == expected.shape == (*shape[:-1], 3)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    unknown = keras.Input((None, 4))
    assert linear(unknown).shape == dense(unknown).shape == (None, None, 3)


def test_linear_has_the_gradients_of_dense(normal, gradients, pair):
    x = normal(2, 5, 4)
    found = [
        gradients(lambda x, layer=layer: ops.sum(layer(x) ** 2), x, layers=[layer])
        for layer in pair()
    ]
    for ours, theirs in zip(*found, strict=True):
        assert np.abs(theirs).max() > 0.1
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", [pytest.param("int8", marks=pytest.mark.slow), "int4", "float8"])
def test_linear_is_quantized_like_dense(numpy, normal, pair, mode):
    x = normal(2, 5, 4)
    linear, dense = pair()
    before = numpy(linear(x))
    for layer in (linear, dense):
        layer.quantize(mode)
    output, expected = numpy([linear(x), dense(x)])
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(output, before, atol=0.3 * np.abs(before).max())
    assert np.abs(output - before).max() > 0
    assert [w.path.split("/")[-1] for w in linear.weights] == [
        w.path.split("/")[-1] for w in dense.weights
    ]


def test_linear_learns_by_low_rank_adaptation(numpy, normal, pair):
    linear, _ = pair()
    x = normal(2, 5, 4)
    before = numpy(linear(x))
    kernel = numpy(linear.kernel)
    linear.enable_lora(2)
    np.testing.assert_allclose(numpy(linear(x)), before, atol=1e-6)
    assert sorted(tuple(w.shape) for w in linear.trainable_weights) == [(2, 3), (3,), (4, 2)]
    linear.lora_kernel_a.assign(normal(4, 2, seed=3))
    linear.lora_kernel_b.assign(normal(2, 3, seed=4))
    expected = before + x @ (normal(4, 2, seed=3) @ normal(2, 3, seed=4))
    np.testing.assert_allclose(numpy(linear(x)), expected, atol=1e-5)
    np.testing.assert_allclose(
        numpy(linear.kernel), kernel + normal(4, 2, seed=3) @ normal(2, 3, seed=4), atol=1e-5
    )


def test_linear_outlives_a_file(numpy, normal, tmp_path):
    x = keras.Input((None, 4))
    layer = backend.Linear(3, "tanh", name="linear")
    model = keras.Model(x, layer(x))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.get_layer("linear")) is backend.Linear
    assert loaded.get_layer("linear").get_config() == layer.get_config()
    x = normal(2, 5, 4)
    np.testing.assert_array_equal(numpy(loaded(x)), numpy(model(x)))


@pytest.mark.parametrize("reverse", [False, True], ids=["ids", "logits"])
def test_a_reversible_embedding_has_the_values_and_gradients_of_that_of_keras(
    numpy, normal, gradients, reverse
):
    x = normal(2, 5, 4) if reverse else np.array([[1, 6, 0], [2, 2, 5]])
    found = []
    for kind in (backend.ReversibleEmbedding, keras.layers.ReversibleEmbedding):
        layer = kind(7, 4)
        layer.build((None, None))
        layer.set_weights([normal(7, 4, seed=1)])
        output = numpy(layer(x, reverse=reverse))
        arrays = [x] if reverse else []

        def squares(x=x, layer=layer):
            return ops.sum(layer(x, reverse=reverse) ** 2)

        found.append([output, *gradients(squares, *arrays, layers=[layer])])
    for ours, theirs in zip(*found, strict=True):
        assert np.abs(theirs).max() > 0.1
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_an_unknown_number_of_rows_is_minus_1_and_a_known_one_its_number():
    assert backend.shape_of(keras.Input((5, 8))) == (-1, 5, 8)
    assert tuple(backend.shape_of(ops.zeros((2, 5, 8)))) == (2, 5, 8)


# Layers that are computed once more


def test_a_layer_in_its_call_in_one_thread_is_computed_once_more_in_another(normal):
    class Doubled(backend.RematerializedLayer):
        def call(self, x, training=None):
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                other = threads.submit(self.rematerialized_call, function, x, training=True)
                found.append((self.rematerialized_call(function, x, training=True), other.result()))
            return 2 * x

    found, function = [], Doubled.call
    with keras.RematScope(mode="full"):
        layer = Doubled()
        layer(ops.convert_to_tensor(normal(2, 3)), training=True)
    assert found
    for here, there in found:
        assert here is function and there is not function
    assert layer.rematerialized_call(function, training=False) is function


# Arrays with a few new values


@pytest.mark.parametrize("as_tensor", [False, True], ids=["int", "tensor"])
@pytest.mark.parametrize("axis, slot, number", [(0, 1, 1), (1, 0, 2), (2, 3, 2), (2, 4, 1)])
def test_slots_are_written_and_no_others(numpy, normal, axis, slot, number, as_tensor):
    before = normal(2, 3, 5)
    shape = [2, 3, 5]
    shape[axis] = number
    new = normal(*shape, seed=1)
    expected = before.copy()
    np.moveaxis(expected, axis, 0)[slot : slot + number] = np.moveaxis(new, axis, 0)
    at = ops.convert_to_tensor(slot, "int32") if as_tensor else slot
    cache = ops.convert_to_tensor(before.copy())
    slots = backend.slot_indices(at, number)
    written = backend.write_slots(cache, ops.convert_to_tensor(new), slots, axis)
    np.testing.assert_array_equal(numpy(written), expected)


@pytest.mark.parametrize("fuses", [False, True], ids=["scattered", "fused"])
def test_one_value_per_row_is_subtracted_at_its_column(numpy, monkeypatch, fuses):
    monkeypatch.setattr(kernels, "fuses", lambda: fuses)
    x = ops.convert_to_tensor(np.array([[1, 2, 3], [4, 5, 6]], "float32"))
    columns = ops.convert_to_tensor(np.array([[2], [0]], "int32"))
    values = ops.convert_to_tensor(np.array([[0.5], [8]], "float32"))
    result = numpy(kernels.subtract_at(x, columns, values))
    np.testing.assert_array_equal(result, [[1, 2, 2.5], [-4, 5, 6]])


def test_the_state_of_dropout_of_another_device_is_ignored():
    if backend.name() != "torch":
        assert backend.dropout_state() is None
        return
    backend.seed_dropout(1)
    state = backend.dropout_state()
    backend.seed_dropout(2)
    other = backend.dropout_state()
    backend.set_dropout_state(state[:8])  # a CPU's has thousands of bytes, a GPU's 16
    np.testing.assert_array_equal(backend.dropout_state(), other)
    backend.set_dropout_state(state)
    np.testing.assert_array_equal(backend.dropout_state(), state)


# Programs


def test_for_few_texts_a_traced_function_is_recorded_when_it_has_been_called_often(numpy):
    calls = []

    def square(x):
        calls.append(len(x))
        return x * x

    traced = backend.trace(square, few=True)
    x = ops.arange(3, dtype="float32")
    for _ in range(recording.UNRECORDED + 3):
        np.testing.assert_array_equal(numpy(traced(x)), [0, 1, 4])
    extra = 1 if backend.name() == "torch" else 3  # the record is one more call
    assert len(calls) == recording.UNRECORDED + extra


def test_for_few_texts_tensorflow_runs_a_graph_without_xla(monkeypatch):
    if backend.name() != "tensorflow":
        pytest.skip("the other backends have no such graph")
    tensorflow = importlib.import_module("tensorflow")
    with_xla = []

    def graph_of(function, jit_compile, **options):
        def run(x):
            with_xla.append(jit_compile)
            return function(x)

        return run

    monkeypatch.setattr(tensorflow, "function", graph_of)
    monkeypatch.setattr(compilation, "MOST_PROGRAMS", 1)
    programs = backend.Programs(None)
    for key in ("a", "b"):
        square = programs.get(key, lambda: backend.jit(ops.square, programs))
        assert [float(square(3.0, few=few)) for few in (False, True)] == [9, 9]
    assert with_xla == [True, False, False, False]  # b replaces a


def test_a_function_takes_few_texts_on_every_backend(numpy):
    double = backend.jit(lambda x: x * 2, backend.Programs(keras.Sequential()))
    x = backend.to_arguments(np.arange(3, dtype="float32"))
    for few in ({}, {"few": False}, {"few": True}):
        np.testing.assert_array_equal(numpy(double(x, **few)), [0, 2, 4])


def test_how_many_tokens_are_few():
    most = {"tensorflow": 131_072, "torch": 256, "jax": 0}[backend.name()]
    assert [backend.are_few(most), backend.are_few(most + 1)] == [True, False]


def test_a_traced_function_tells_the_same_tensor_given_twice_from_two_tensors(numpy):
    difference = backend.trace(lambda x, y: x - 2 * y)
    one, three = (ops.full((2, 3), value) for value in (1.0, 3.0))
    np.testing.assert_array_equal(numpy(difference(one, one)), np.full((2, 3), -1))
    np.testing.assert_array_equal(numpy(difference(three, one)), np.full((2, 3), 1))
    np.testing.assert_array_equal(numpy(difference(one, three)), np.full((2, 3), -5))


def test_a_traced_function_is_recorded_again_for_another_shape_dtype_or_none(numpy):
    def total(structure):
        x, y = structure["x"], structure["y"]
        return ops.sum(x, axis=0) if y is None else ops.sum(x, axis=0) + y

    traced = backend.trace(total)
    x = ops.convert_to_tensor(np.array([[1, 2], [3, 4]], "float32"))
    np.testing.assert_array_equal(numpy(traced({"x": x, "y": None})), [4, 6])
    np.testing.assert_array_equal(numpy(traced({"x": x, "y": x[0]})), [5, 8])
    np.testing.assert_array_equal(numpy(traced({"x": x[:1], "y": x[0]})), [2, 4])
    of_ints = traced({"x": ops.cast(x, "int32"), "y": None})
    np.testing.assert_array_equal(numpy(of_ints), [4, 6])
    assert keras.backend.standardize_dtype(of_ints.dtype) == "int32"


def test_a_traced_function_may_be_called_from_several_threads(numpy):
    square = backend.trace(lambda x: x * x)
    results = {}

    def call(length):
        results[length] = square(ops.arange(length, dtype="float32"))

    threads = [threading.Thread(target=call, args=(length,)) for length in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for length in range(2, 6):
        np.testing.assert_array_equal(numpy(results[length]), np.arange(length) ** 2)


def test_an_error_of_a_traced_function_is_raised_and_not_remembered(capsys):
    calls = []

    def square(x):
        calls.append(len(x))
        if len(calls) < 3:
            raise MemoryError("full")
        return x * x

    traced = backend.trace(square)
    x = ops.arange(3, dtype="float32")
    with pytest.raises(MemoryError, match="full"):
        traced(x)
    calls += [0, 0]
    for _ in range(3):
        np.testing.assert_array_equal(ops.convert_to_numpy(traced(x)), [0, 1, 4])
    if backend.name() == "torch":
        assert calls.count(3) == 3 and not capsys.readouterr().err  # two failed, one recorded


def test_a_traced_function_keeps_a_limited_number_of_shapes(numpy, monkeypatch):
    monkeypatch.setattr(recording, "MOST_RECORDED", 2)
    calls = []

    def square(x):
        calls.append(len(x))
        return x * x

    traced = backend.trace(square)
    for length in (1, 2, 1, 2, 3, 2, 1, 1):
        x = ops.arange(length, dtype="float32")
        np.testing.assert_array_equal(numpy(traced(x)), np.arange(length) ** 2)
    if backend.name() == "torch":
        assert calls == [1, 2, 3, 1]  # 1 was dropped for 3


def test_the_programs_that_were_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(compilation, "MOST_PROGRAMS", 2)
    programs, made = backend.Programs(None), []

    def make(key):
        made.append((key, programs.full))
        return key.upper()

    assert [programs.get(key, lambda key=key: make(key)) for key in "abacab"] == list("ABACAB")
    assert made == [("a", F), ("b", F), ("c", T), ("b", T)]  # b was dropped for c: a was used later


@pytest.fixture
def idle_cores(monkeypatch):
    monkeypatch.setattr(process, "_has_idle_cores", lambda: True)


def test_two_batches_are_decoded_at_a_time_and_their_order_is_kept(idle_cores):
    together = threading.Barrier(2, timeout=60)
    read_by = set()

    def batches():
        for number in range(6):
            read_by.add(threading.get_ident())
            yield number

    def decode(number):
        together.wait()  # for the other of two, or the test fails
        time.sleep(0.02 if number % 2 else 0)
        return number**2

    assert list(backend.map_batches(decode, batches())) == [0, 1, 4, 9, 16, 25]
    assert read_by == {threading.get_ident()}


def test_one_batch_is_decoded_by_the_thread_that_asks(idle_cores):
    found = list(backend.map_batches(lambda _: threading.get_ident(), [0]))
    assert found == [threading.get_ident()]
    assert list(backend.map_batches(None, [])) == []


def test_few_batches_are_read_ahead(idle_cores):
    read = []
    results = backend.map_batches(str, (read.append(n) or n for n in range(100)))
    assert next(results) == "0"
    assert len(read) <= 4
    assert [*results] == [str(n) for n in range(1, 100)]


@pytest.mark.parametrize("where", ["decode", "batches"])
def test_an_error_in_one_of_two_batches_reaches_the_caller(idle_cores, where):
    def batches():
        yield from range(3)
        if where == "batches":
            raise ZeroDivisionError

    def decode(number):
        return 1 / (number - 1) if where == "decode" else number

    with pytest.raises(ZeroDivisionError):
        list(backend.map_batches(decode, batches()))


@pytest.mark.parametrize("option", ["cores", "accelerator"])
def test_batches_are_decoded_one_by_one_where_no_core_is_idle(monkeypatch, option):
    if option == "cores":
        monkeypatch.setattr(process, "num_cores", lambda: 1)
    else:
        monkeypatch.setattr(process, "on_accelerator", lambda: True)
    threads = set(backend.map_batches(lambda _: threading.get_ident(), range(4)))
    assert threads == {threading.get_ident()}


def test_a_compiled_function_reads_the_weights_at_each_call(numpy, randomize):
    model = randomize(LanguageModel(7, num_layers=1, d_model=8, num_heads=2, d_ff=16), seed=1)
    program = backend.jit(model.decode, backend.Programs(model))
    ids = ops.convert_to_tensor(np.array([[2, 4, 5]]))
    first = numpy(program(ids))
    np.testing.assert_allclose(first, numpy(model.decode(ids)), atol=1e-5)
    randomize(model, seed=2)
    second = numpy(program(ids))
    np.testing.assert_allclose(second, numpy(model.decode(ids)), atol=1e-5)
    assert np.abs(second - first).max() > 0.1


def test_a_compiled_function_takes_plain_values_by_keyword(numpy, randomize):
    model = LanguageModel(7, num_layers=1, d_model=8, num_heads=2, d_ff=16)

    def zeros(x, length=1):
        return ops.concatenate([x, ops.zeros(length)])

    program = backend.jit(zeros, backend.Programs(model), "length")
    x = ops.ones(2)
    for length in (1, 3):
        expected = [1, 1, *[0] * length]
        np.testing.assert_array_equal(numpy(program(x, length=length)), expected)


def test_arrays_become_tensors_and_none_stays_none(numpy):
    array = np.array([[1, 2]], "int32")
    tensors = backend.to_tensors({"a": array, "b": (None, array[0])})
    assert ops.is_tensor(tensors["a"]) and ops.is_tensor(tensors["b"][1])
    assert tensors["b"][0] is None
    np.testing.assert_array_equal(numpy(tensors["a"]), array)
    assert keras.backend.standardize_dtype(tensors["a"].dtype) == "int32"
    assert backend.to_tensors(None) is None


# Settings


def test_the_name_is_that_of_keras():
    assert backend.name() == keras.backend.backend()


@pytest.mark.parametrize("number", [0, -1, 1.5])
def test_a_number_of_threads_below_1_is_an_error(number):
    message = f"number must be an integer of at least 1; received number={number}"
    with pytest.raises(ValueError, match=message):
        backend.set_num_threads(number)


PAGES = """
def pages():
    libc, size = ctypes.CDLL(None), 24 * 2**20
    libc.prctl(41, 1, 0, 0, 0)  # no huge pages
    libc.malloc.restype = ctypes.c_void_p
    for round in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size))) for _ in range(5)]
        for array in arrays:
            ctypes.memset(array, 1, size)
        for array in arrays:
            libc.free(array)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.once
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries cannot be told so")
@pytest.mark.parametrize("name", ["tensorflow", "jax"])
@pytest.mark.parametrize("thread", ["main", "other"])  # TensorFlow computes in others
def test_memory_that_was_freed_is_not_asked_for_again_page_by_page(thread, name):
    def pages(*lines):
        call = "pages()" if thread == "main" else "Thread(target=pages).start()"
        imports = ["import ctypes, os, resource, sys", "from threading import Thread"]
        program = "\n".join([*imports, *lines, PAGES, call])
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        return int(found.stdout)

    # Alone: Keras takes seconds.
    function = f"name = lambda: {name!r}\n" + inspect.getsource(backend.keep_freed_memory)
    assert pages(function, "keep_freed_memory()") < 100 < 1_000 < pages(function)


SPED_UP = """
import ctypes, resource
import numpy as np
from keras.src.trainers.data_adapters import get_data_adapter
from keras_transformer import backend

def measure():
    pages()
    if backend.name() == "tensorflow":
        options = get_data_adapter(np.zeros((6, 2))).get_tf_dataset().options()
        print(options.autotune.enabled)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries cannot be told so")
def test_one_call_keeps_memory_and_leaves_pipelines_untuned_but_no_import_does():
    program = [SPED_UP, PAGES, "measure()", "backend.speed_up_training()", "measure()"]
    command = [sys.executable, "-c", "\n".join(program)]
    found = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    before, after = found[: len(found) // 2], found[len(found) // 2 :]
    assert int(after[0]) < 1_000 < int(before[0])  # other threads may ask for some
    if backend.name() == "tensorflow":
        assert before[1] != "False" and after[1] == "False"


KEEP = """
import sys
import jax
from keras_transformer import backend
backend.keep_programs(sys.argv[1])
jax.jit(lambda x: x * 3)(2.0)
"""


@pytest.mark.slow
def test_compiled_programs_are_kept_for_other_processes(tmp_path):
    folder = tmp_path / "programs"
    if backend.name() != "jax":
        with pytest.raises(ValueError, match=f"on JAX alone, .*backend='{backend.name()}'"):
            backend.keep_programs(folder)
        return
    names = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", KEEP, str(folder)], check=True)
        names.append(sorted(path.name for path in folder.iterdir() if "-atime" not in path.name))
    assert names[0] and names[1] == names[0]


DETERMINISTIC = """
import os
os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=false"
import keras
from keras_transformer import backend
backend.make_deterministic()
if backend.name() == "tensorflow":
    import tensorflow as tf
    try:
        tf.random.uniform([])
    except RuntimeError as error:  # no seed
        assert "determinism" in str(error)
    else:
        raise AssertionError("operations may differ from run to run")
elif backend.name() == "torch":
    import torch
    assert torch.are_deterministic_algorithms_enabled() and os.environ["CUBLAS_WORKSPACE_CONFIG"]
else:
    flags = "--xla_cpu_enable_fast_math=false --xla_gpu_deterministic_ops=true"
    assert os.environ["XLA_FLAGS"] == flags and not keras.config.is_flash_attention_enabled()
assert keras.ops.convert_to_numpy(keras.ops.ones(2)).sum() == 2  # the backend knows its flags
"""


@pytest.mark.slow
def test_each_backend_is_asked_for_deterministic_operations():
    subprocess.run([sys.executable, "-c", DETERMINISTIC], check=True)


def test_dropout_is_the_same_after_the_same_seeds(numpy, same_dropout):
    layer = keras.layers.Dropout(0.5)
    x = np.ones((1, 1000), "float32")

    def dropped(seed):
        same_dropout(layer)  # the state that a layer holds
        backend.seed_dropout(seed)  # the generator of a backend
        return numpy(layer(x, training=True))

    np.testing.assert_array_equal(dropped(5), dropped(5))
    assert 0.3 < dropped(5).mean() / 2 < 0.7


@pytest.mark.skipif(backend.name() != "tensorflow", reason="tf.data is TensorFlow's")
@pytest.mark.parametrize("kind", ["batches", "arrays", "generator"])
def test_an_epoch_does_not_wait_for_the_tuning_of_its_pipeline(kind):
    from keras.src.trainers.data_adapters import get_data_adapter

    ids = [[5, 6], [7]] * 3
    data = {
        "batches": kt.TranslationBatches(ids, ids),
        "arrays": np.zeros((6, 2)),
        "generator": ((np.zeros((6, 2)),) for _ in range(1)),
    }
    dataset = get_data_adapter(data[kind]).get_tf_dataset()
    assert dataset.options().autotune.enabled is False
    assert len(list(dataset)) == 1
