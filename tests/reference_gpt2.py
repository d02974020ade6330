"""GPT-2 models of Hugging Face's own class, with byte-level BPE learned from made-up texts."""

import json
import random

import numpy as np
import pytest

# The gate has them all, on each backend; who installs less can still run the other tests.
OPTIONAL = dict(reason="the models to compare with are optional", exc_type=ImportError)
torch = pytest.importorskip("torch", **OPTIONAL)
transformers = pytest.importorskip("transformers", **OPTIONAL)
tokenizers = pytest.importorskip("tokenizers", **OPTIONAL)
pytest.importorskip("safetensors", **OPTIONAL)
torch.set_num_threads(1)  # models this small are ten times slower with two
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SMALL = dict(n_embd=32, n_layer=2, n_head=4, n_positions=96)
TRUE = dict(n_embd=768, n_layer=12, n_head=12, n_positions=1024)  # GPT-2's smallest model
TRUE_VOCABULARY = 50_257
SEPARATOR = "<|endoftext|>"
ODD = [
    "🙂", "👩‍🚀", "草地", "中文和 English", "ß", "é", "e\u0301", "\x00", "\x7f", "\u2028", "\ufffd",
    "\u2047", "\n", "\n\n\t", "  ", "   x", "\r\n", "1/2 ½", "don't", "we'll", "😀😀", SEPARATOR,
    "<s>", "</s>", "<pad>", "Ġ", "a\u00a0b",
]  # fmt: skip


def _words():
    rng = random.Random(0)
    return ["".join(rng.choices("abcdefghijklm", k=rng.randint(1, 6))) for _ in range(90)]


WORDS = _words()


def texts(number, seed=0):
    """Texts of made-up words, spaces, line ends, emoji, Chinese and control characters."""
    rng = random.Random(seed)

    def text():
        parts = [rng.choice(WORDS if rng.random() < 0.7 else ODD) for _ in range(rng.randint(1, 9))]
        return rng.choice(["", " ", "\n"]).join(parts)

    return [text() for _ in range(number)]


def train_pairs(size=420):
    """The ids and the merges that the library learns."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(texts(500, seed=-1), trainer)
    description = json.loads(library.to_str())["model"]
    return description["vocab"], description["merges"]


def write_vocabulary(folder, size=None, seed=5):
    """Writes vocab.json and merges.txt, with ids in any order.

    Args:
        folder: pathlib.Path.
        size: int; there are merges at random for more tokens than were learned. None: no others.
        seed: int.

    Returns:
        int, number of tokens; int, the id of the separator.
    """
    rng = random.Random(seed)
    vocabulary, merges = train_pairs()
    tokens = dict.fromkeys([*vocabulary, SEPARATOR])
    learned = list(vocabulary)
    while len(tokens) < (size or 0):
        pair = rng.choices(learned, k=2)
        if "".join(pair) not in tokens:
            tokens["".join(pair)] = None
            merges.append(pair)
    tokens = list(tokens)
    rng.shuffle(tokens)
    ids = {token: id for id, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(ids), "utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines), "utf-8")
    return len(tokens), ids[SEPARATOR]


def write_gpt2(folder, sizes=SMALL, vocabulary_size=None, seed=5):
    """Writes a model as GPT-2 is stored: with tokenizer.json, which the other two files make.

    Returns:
        GPT2LMHeadModel, GPT2Tokenizer.
    """
    size, separator = write_vocabulary(folder, vocabulary_size, seed)
    ids = dict(bos_token_id=separator, eos_token_id=separator)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, vocab_size=size, **ids))
    _randomize(model.eval(), seed)
    model.save_pretrained(folder)
    tokenizer = transformers.GPT2Tokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def _randomize(model, seed):
    """Weights far from zero and one, so that none of them could be lost unnoticed.

    One feature is the same in all tokens: `shift` moves all logits by it.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(generator=generator)
            if weight.ndim == 2:
                inputs = model.config.n_embd / 32 if "wte" in name or "wpe" in name else len(weight)
                weight *= inputs**-0.5
            else:
                weight *= 0.3
                weight += "ln_" in name and "weight" in name
        norm = model.transformer.ln_f
        norm.weight.normal_(generator=generator)  # of both signs: no token is its own successor
        norm.bias *= 0.1
        model.transformer.wte.weight[:, 0] = 1
        shift(model, 0)


def shift(model, number):
    """Adds a number to all logits, which changes no probability."""
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = 0
        model.transformer.ln_f.bias[0] = number


def their_logits(model, ids):
    """Logits of a GPT2LMHeadModel for its own ids."""
    with torch.no_grad():
        return model(torch.tensor(np.asarray(ids))).logits.numpy()


def their_continuations(model, tokenizer, prompts, max_tokens):
    """Greedy continuations after the separator and each prompt, by `generate`.

    Returns:
        list of str; int, the number of those that ended before the limit.
    """
    rows = [[tokenizer.eos_token_id, *encode(tokenizer, prompt)] for prompt in prompts]
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    with torch.no_grad():
        found = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=tokenizer.eos_token_id,
        )
    answers, ended = [], 0
    for row in found[:, longest:].tolist():
        ended += tokenizer.eos_token_id in row
        row = row[: row.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in row else row
        answers.append(row)
    texts = [
        tokenizer.decode(row[1:] + answer, clean_up_tokenization_spaces=False)
        for row, answer in zip(rows, answers, strict=True)
    ]
    return texts, ended


def encode(tokenizer, text):
    """Their ids of a text; the name of the separator is text, as in this package."""
    parts = text.split(SEPARATOR)
    if len(parts) == 1:
        return tokenizer(text).input_ids
    library = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    library.encode_special_tokens = True
    return library.encode(text).ids
