"""Folders to import that are damaged, foreign or made to do harm: one sentence, nothing is run.

Every mutation is drawn from a seed, so a failure names the number that repeats it.
"""

import json
import pickle
import random

import numpy as np
import pytest

import reference_gpt2
import reference_marian as reference
from keras_transformer import interchange

pytestmark = pytest.mark.slow  # transformers, which writes the folders, takes seconds to import

MUTATIONS, GPT2_MUTATIONS = 240, 160
FILES = ("config.json", "vocab.json", "source.spm", "target.spm", "model.safetensors")
NO_OBJECTS = (b"", b"[]", b"null", b"7", b"\xff\xfe{}", b"[" * 100_000, b'{"a": 1', b"{'a': 1}")
NUMBERS = (None, 0, -1, 1.5, "2", True, [], {}, 2**40)
SWITCHES = (None, 1, "true", [True])
CONFIG = {  # keys with values that none of our models has
    "model_type": ("bart", "opus", None, 3, {}),
    "d_model": (*NUMBERS, 31, 64),
    "vocab_size": (*NUMBERS, 3, 1000),
    "encoder_layers": (*NUMBERS, 1, 3),
    "decoder_layers": (*NUMBERS, 1, 3),
    "encoder_attention_heads": (*NUMBERS, 3, 5),
    "decoder_attention_heads": (*NUMBERS, 2),
    "encoder_ffn_dim": (*NUMBERS, 63),
    "decoder_ffn_dim": (*NUMBERS, 63),
    "decoder_vocab_size": (0, "3", 3),
    "dropout": (1.0, -0.1, "x", None, []),
    "attention_dropout": (1.0, -0.1, "x", None, []),
    "activation_dropout": (0.1, "x", None),
    "activation_function": ("gelu_new", "SWISH", None, 3, ["relu"]),
    "scale_embedding": (*SWITCHES, False),
    "static_position_embeddings": (*SWITCHES, False),
    "share_encoder_decoder_embeddings": (*SWITCHES, False),
    "tie_word_embeddings": (*SWITCHES, False),
    "is_encoder_decoder": (*SWITCHES, False),
    "normalize_before": (*SWITCHES[1:], True),
    "normalize_embedding": (*SWITCHES[1:], True),
    "add_final_layer_norm": (*SWITCHES[1:], True),
    "pad_token_id": (None, -1, 10**6, "3"),
    "eos_token_id": (None, -1, 10**6, "3", [0]),
    "decoder_start_token_id": (None, -1, 10**6, "3"),
}
SEARCH = {
    "num_beams": (0, -2, "4", None, 1.5, [4]),
    "length_penalty": (-1.0, "x", None, float("nan"), float("inf"), [1]),
    "bad_words_ids": ([[1, 2]], [], 3, "x"),
}


class Harm:
    """The effect of a pickle that is not only data."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The content of each file of a small model."""
    folder = tmp_path_factory.mktemp("marian")
    reference.write_marian(folder, updates=0)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def as_json(value):
    return json.dumps(value).encode()


def changed_vocabulary(content, rng):
    """vocab.json such that it does not fit the other files."""
    ids = json.loads(content)
    one, other = rng.sample(sorted(ids), 2)
    match rng.randrange(8):
        case 0:
            ids[one] = ids[other]
        case 1:
            del ids[one]
        case 2:
            ids["new"] = len(ids)
        case 3:
            ids[one] = rng.choice(["3", 1.5, None, -1, True, [], 2**70])
        case 4:
            ids = {token: id + 1 for token, id in ids.items()}
        case 5:
            special = rng.choice(["</s>", "<pad>", "<unk>"])
            ids["<other>"] = ids.pop(special)
        case 6:
            special = rng.choice(["</s>", "<pad>"])
            ids[special], ids["<unk>"] = ids["<unk>"], ids[special]
        case 7:
            wrong = rng.choice(["", "a\0b", "\ud800"])
            ids[wrong] = ids.pop(next(token for token in ids if token.startswith("▁")))
    return as_json(ids)


def changed_weights(content, rng):
    """model.safetensors with other tensors."""
    from safetensors.numpy import load, save

    weights = load(content)
    name = rng.choice(sorted(weights))
    match rng.randrange(6):
        case 0:
            del weights[name]
        case 1:
            weights[f"{name}.more"] = weights[name]
        case 2:
            weights[name] = weights[name][..., :-1].copy()
        case 3:
            weights[name] = weights[name].astype(rng.choice(["int8", "int32", "bool"]))
        case 4:
            weights[name].flat[rng.randrange(weights[name].size)] = rng.choice([np.nan, np.inf])
        case 5:
            embedding = "model.shared.weight"
            embedding = embedding if embedding in weights else "transformer.wte.weight"
            weights["lm_head.weight"] = weights[embedding] + 1
    return save(weights)


def pickled(value):
    return pickle.dumps(value, protocol=2)


def spoil(files, name, kind, values, rng, done):
    """A defect that any folder may have: of a file, or of a value in config.json."""
    match kind:
        case 0:
            del files[name]
        case 1:
            files[name] = None
        case 2:
            files[name] = files[name][: rng.randrange(len(files[name]) - 8)]
        case 3:
            files[name] = rng.choice([rng.randbytes(300), pickled(Harm(done)), *NO_OBJECTS])
        case 4 | 5:
            key = rng.choice(list(values))
            config = {**json.loads(files["config.json"]), key: rng.choice(values[key])}
            files["config.json"] = as_json(config)


def mutate(files, rng, done):
    """The files with one defect, for which none of them can be imported.

    Returns:
        dict from names to contents; None for a folder in place of a file.
    """
    files = dict(files)
    name = rng.choice(FILES)
    match rng.randrange(9):
        case kind if kind < 6:
            spoil(files, name, kind, CONFIG, rng, done)
        case 6:
            key = rng.choice(list(SEARCH))
            config = {**json.loads(files["generation_config.json"]), key: rng.choice(SEARCH[key])}
            files["generation_config.json"] = as_json(config)
        case 7:
            files["vocab.json"] = changed_vocabulary(files["vocab.json"], rng)
        case 8:
            files["model.safetensors"] = changed_weights(files["model.safetensors"], rng)
    return files


def write(folder, files):
    folder.mkdir()
    for name, content in files.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder


def refusal(folder, read=interchange.from_marian):
    """The sentence with which a folder is refused, after what is demanded of every one."""
    before = sorted(folder.rglob("*"))
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        read(folder)
    message = str(error.value)
    assert type(error.value) in (ValueError, FileNotFoundError), repr(error.value)
    assert str(folder) in message and message.endswith("."), message
    assert "\n" not in message and 30 < len(message) < 500, message
    assert sorted(folder.rglob("*")) == before
    return message


@pytest.mark.parametrize("first", range(0, MUTATIONS, 60))
def test_a_folder_with_a_defect_is_refused_in_one_sentence(files, tmp_path, first):
    done = tmp_path / "done"
    for number in range(first, first + 60):
        folder = write(tmp_path / str(number), mutate(files, random.Random(number), done))
        try:
            refusal(folder)
        except BaseException as error:
            raise AssertionError(f"mutation {number}") from error
    assert not done.exists()


def test_the_unchanged_folder_is_imported(files, tmp_path):
    interchange.from_marian(write(tmp_path / "model", files))


@pytest.mark.parametrize("value", ["harm", "list", "text", "number", "whole", "no tensor"])
def test_a_pickle_of_anything_but_tensors_is_refused_and_not_run(files, tmp_path, value):
    torch = reference.torch
    done, weights = tmp_path / "done", tmp_path / "weights"
    values = {
        "harm": {"model.shared.weight": Harm(done)},
        "list": [torch.zeros(2)],
        "text": "text",
        "number": {"model.shared.weight": 3},
        "whole": {"model.shared.weight": torch.zeros(2, dtype=torch.int32)},
        "no tensor": torch.nn.Linear(2, 2),
    }
    torch.save(values[value], weights)
    files = {name: content for name, content in files.items() if name != "model.safetensors"}
    for number, content in enumerate((weights.read_bytes(), pickled(values[value]))):
        folder = write(tmp_path / str(number), {**files, "pytorch_model.bin": content})
        assert "pytorch_model.bin" in refusal(folder)
    assert not done.exists()


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"weight_map": []},
        {"weight_map": {"x": 3}},
        {"weight_map": {"x": "../outside.safetensors"}},
        {"weight_map": {"x": "nowhere.safetensors"}},
        {"weight_map": {"x": "pytorch_model.bin"}},
        {"weight_map": {"x": "one.safetensors"}},
    ],
    ids=str,
)
def test_an_index_of_shards_that_does_not_fit_is_refused(files, tmp_path, index):
    content = files["model.safetensors"]
    files = {name: each for name, each in files.items() if name != "model.safetensors"}
    files |= {"one.safetensors": content, "model.safetensors.index.json": as_json(index)}
    (tmp_path / "outside.safetensors").write_bytes(content)
    assert "safetensors" in refusal(write(tmp_path / "model", files))


def test_no_folder_a_file_and_a_folder_without_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere"):
        interchange.from_marian(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="Expected a folder .* received the file .*file"):
        interchange.from_marian(tmp_path / "file")
    assert "no " in refusal(write(tmp_path / "empty", {}))


def test_a_segmentation_that_would_merge_pieces_of_the_other_language_is_refused(files, tmp_path):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(reference.SOURCE.sentences(500)),
        model_writer=model,
        vocab_size=100,
        model_type="bpe",
        minloglevel=2,
    )
    folder = write(tmp_path / "model", {**files, "source.spm": model.getvalue()})
    assert "must be of type unigram" in refusal(folder)


def test_what_is_not_expressible_is_named_with_what_was_expected(files, tmp_path):
    config = json.loads(files["config.json"])
    for number, (key, value, message) in enumerate(
        [
            ("normalize_before", True, "expected normalize_before to be false; received true"),
            ("scale_embedding", False, "expected scale_embedding to be true; received false"),
            ("decoder_ffn_dim", 3, "expected decoder_ffn_dim to be 64; received 3"),
            ("activation_function", "gelu_new", 'received "gelu_new"'),
            ("model_type", "bart", 'expected model_type to be "marian"; received "bart"'),
            ("encoder_attention_heads", None, "to be an integer of at least 1; received null"),
        ]
    ):
        changed = {**files, "config.json": as_json({**config, key: value})}
        found = refusal(write(tmp_path / str(number), changed))
        assert message in found and "config.json" in found, found


# GPT-2

GPT2_CONFIG = {
    "model_type": ("gpt", "gpt_neo", None, 3, {}),
    "n_embd": (*NUMBERS, 31, 64),
    "n_layer": (*NUMBERS, 1, 3),
    "n_head": (*NUMBERS, 3, 5),
    "n_inner": (*NUMBERS[1:], 63),
    "n_positions": (*NUMBERS, 1, 95, 97),
    "vocab_size": (*NUMBERS, 3, 1000),
    "activation_function": ("quick_gelu", "GELU", None, 3, ["relu"]),
    "resid_pdrop": (1.0, -0.1, 0.2, "x", None, []),
    "embd_pdrop": (1.0, -0.1, 0.2, "x", None, []),
    "attn_pdrop": (1.0, -0.1, "x", None, []),
    "layer_norm_epsilon": (0, -1e-5, "x", None, []),
    "scale_attn_weights": (*SWITCHES, False),
    "tie_word_embeddings": (*SWITCHES, False),
    "scale_attn_by_inverse_layer_idx": (*SWITCHES[1:], True),
    "add_cross_attention": (*SWITCHES[1:], True),
    "bos_token_id": (-1, 10**6, "3", [0]),
    "eos_token_id": (None, -1, 10**6, "3", [0], 7),
}


@pytest.fixture(scope="module")
def gpt2_files(tmp_path_factory):
    """The content of each file of a small GPT-2, tokenizer.json and the two files of before."""
    folder = tmp_path_factory.mktemp("gpt2")
    reference_gpt2.write_gpt2(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def changed_description(content, rng):
    """tokenizer.json such that it is not a byte-level BPE, or does not fit the model."""
    description = json.loads(content)
    model = description["model"]
    token = next(token for token in model["vocab"] if len(token) == 1)
    match rng.randrange(11):
        case 0:
            del description[rng.choice(["model", "pre_tokenizer", "decoder"])]
        case 1:
            name = rng.choice(["model", "pre_tokenizer", "decoder", "added_tokens"])
            description[name] = rng.choice([3, "x", [[]], True, {"x": None}])
        case 2:
            description["normalizer"] = {"type": "NFC"}
        case 3:
            description["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a+)+$"}}
        case 4:
            model["type"] = rng.choice(["Unigram", "WordPiece", None, 3])
        case 5:
            added = {"id": len(model["vocab"]), "content": "<|user|>", "special": True}
            description["added_tokens"].append(added)
        case 6:
            del model["vocab"][token]
        case 7:
            model["vocab"][token] = rng.choice([-1, 1.5, "3", None, [], 2**70, len(model["vocab"])])
        case 8:
            merge = rng.choice([["zz", "yy"], ["a"], "a", "a b c", 3, None, [1, 2], ["", "a"], {}])
            model["merges"].insert(rng.randrange(len(model["merges"])), merge)
        case 9:
            name = rng.choice(["dropout", "continuing_subword_prefix", "end_of_word_suffix"])
            model[name] = rng.choice([0.1, "##", [], {}])
        case 10:
            id = model["vocab"].pop(token)
            model["vocab"][rng.choice(["", "\0", "草", "\ud800", "a b"])] = id
    return as_json(description)


def changed_merges(content, rng):
    """merges.txt such that it does not fit vocab.json."""
    lines = content.decode().split("\n")
    wrong = rng.choice(["zz yy", "a", "a b c", "", " ", "a\0 b", "\ufffd a"])
    lines.insert(rng.randrange(1, len(lines) - 1), wrong)
    return "\n".join(lines).encode()


def changed_ids(content, rng):
    """vocab.json with a wrong or missing id."""
    ids = json.loads(content)
    one, other = rng.sample(sorted(token for token in ids if len(token) == 1), 2)
    if rng.random() < 0.3:
        del ids[one]
    else:
        wrong = [ids[other], "3", 1.5, None, -1, True, [], 2**70, len(ids)]
        ids[one] = rng.choice(wrong)
    return as_json(ids)


def mutate_gpt2(files, rng, done):
    """As `mutate`, for the files of a GPT-2, with either kind of its vocabulary."""
    files = dict(files)
    vocabulary = rng.choice([["tokenizer.json"], ["vocab.json", "merges.txt"]])
    for name in {"tokenizer.json", "vocab.json", "merges.txt"}.difference(vocabulary):
        del files[name]
    name = rng.choice(["config.json", "model.safetensors", *vocabulary])
    match rng.randrange(8):
        case kind if kind < 6:
            spoil(files, name, kind, GPT2_CONFIG, rng, done)
        case 6:
            name = rng.choice(vocabulary)
            change = {
                "tokenizer.json": changed_description,
                "vocab.json": changed_ids,
                "merges.txt": changed_merges,
            }[name]
            files[name] = change(files[name], rng)
        case 7:
            files["model.safetensors"] = changed_weights(files["model.safetensors"], rng)
    return files


@pytest.mark.parametrize("first", range(0, GPT2_MUTATIONS, 80))
def test_a_folder_of_gpt2_with_a_defect_is_refused_in_one_sentence(gpt2_files, tmp_path, first):
    done = tmp_path / "done"
    for number in range(first, first + 80):
        changed = mutate_gpt2(gpt2_files, random.Random(number), done)
        folder = write(tmp_path / str(number), changed)
        try:
            refusal(folder, interchange.from_gpt2)
        except BaseException as error:
            raise AssertionError(f"mutation {number}") from error
    assert not done.exists()


def test_the_unchanged_folder_of_gpt2_is_imported(gpt2_files, tmp_path):
    interchange.from_gpt2(write(tmp_path / "one", gpt2_files))
    two = {name: each for name, each in gpt2_files.items() if name != "tokenizer.json"}
    interchange.from_gpt2(write(tmp_path / "two", two))


def test_a_pickle_that_would_run_code_is_refused_for_gpt2_too(gpt2_files, tmp_path):
    done, weights = tmp_path / "done", tmp_path / "weights"
    mask = "h.0.attn.bias"  # a name that is left out does not let it in
    files = {name: each for name, each in gpt2_files.items() if name != "model.safetensors"}
    for number, name in enumerate(("wte.weight", mask)):
        reference.torch.save({name: Harm(done)}, weights)
        changed = {**files, "pytorch_model.bin": weights.read_bytes()}
        folder = write(tmp_path / str(number), changed)
        assert "pytorch_model.bin" in refusal(folder, interchange.from_gpt2)
    assert not done.exists()


def test_what_a_language_model_cannot_express_is_named(gpt2_files, tmp_path):
    config = json.loads(gpt2_files["config.json"])
    for number, (key, value, message) in enumerate(
        [
            ("model_type", "llama", 'expected model_type to be "gpt2"; received "llama"'),
            ("tie_word_embeddings", False, "expected tie_word_embeddings to be true"),
            ("embd_pdrop", 0.3, "expected embd_pdrop and resid_pdrop to be one rate"),
            ("add_cross_attention", True, "expected add_cross_attention to be false"),
            ("bos_token_id", 3, "expected bos_token_id to be"),
            ("n_head", 5, "num_heads must divide d_model"),
        ]
    ):
        changed = {**gpt2_files, "config.json": as_json({**config, key: value})}
        found = refusal(write(tmp_path / str(number), changed), interchange.from_gpt2)
        assert message in found and "config.json" in found, found


@pytest.mark.parametrize("content", ["<|user|>", "li"])
def test_tokens_that_a_text_is_searched_for_before_its_bpe_are_refused(
    gpt2_files, tmp_path, content
):
    description = json.loads(gpt2_files["tokenizer.json"])
    ids = description["model"]["vocab"]
    added = {"id": ids.get(content, len(ids)), "content": content, "special": False}
    description["added_tokens"].append(added)
    files = {**gpt2_files, "tokenizer.json": as_json(description)}
    found = refusal(write(tmp_path / "model", files), interchange.from_gpt2)
    assert "tokenizer.json: Expected no added tokens but the one that separates texts" in found
    assert content in found
