"""GPT-2, as Hugging Face distributes it and the models that were trained from it."""

import os
from typing import Any

import numpy as np

from ...checks import check
from ...ids import PADDING, START, UNKNOWN
from ...models import LanguageModel
from ...models.configuration import TransformerConfig
from ...tasks import TextGenerator
from .. import files
from .vocabulary import read_vocabulary
from .weights import EMBEDDING, HEAD, MASKS, PREFIX, gpt2_weights

OF_TANH = dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh")
ACTIVATIONS = files.ACTIVATIONS | OF_TANH
FIXED = {  # values in config.json; ours has no other
    "scale_attn_weights": True,
    "tie_word_embeddings": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def from_gpt2(folder: str | os.PathLike, dtype: Any = None) -> TextGenerator:
    """A `TextGenerator` from the folder of a GPT-2 model.

        generator = interchange.from_gpt2("gpt2")
        generator.generate(["The Transformer is"], temperature=0.8)

    The folder holds config.json, tokenizer.json (or vocab.json and merges.txt), and the weights in
    model.safetensors (or its shards) or pytorch_model.bin. Nothing of it is run. The logits are
    those of `transformers.GPT2LMHeadModel` to about 1e-5, and greedy continuations are the same, if
    the prompt begins with <|endoftext|> there: here it begins with START.

    Args:
        folder: path of the folder.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.

    Returns:
        `TextGenerator`.

    Raises:
        FileNotFoundError: The folder or one of its files does not exist.
        ImportError: A package that reads one of them is not installed.
        ValueError: A file is damaged, or the model is one that a `LanguageModel` cannot express.

    Source: Radford et al. 2019 (GPT-2).
    Departs: GPT-2 has one token between texts, which is our START and our END. It has neither
        padding nor an unknown token; a bias keeps ours from being written. Names of special tokens
        in a text are text. When the learned positions are used up, generation continues from the
        last half of them; transformers ends with an error.
    """
    folder = files.check_folder(folder)
    settings = files.Settings(folder / files.CONFIG)
    config = _model_config(settings)
    separator = settings.integer("eos_token_id", 0)
    settings.is_one_of("bos_token_id", separator, default=separator)
    vocabulary = read_vocabulary(folder, separator)
    settings.is_one_of("vocab_size", max(vocabulary.rows) + 1)
    values = _read_weights(files.open_weights(folder, MASKS), config, vocabulary.rows)
    model = LanguageModel(len(vocabulary.rows), config=config, dtype=dtype)
    for variable in model.weights:
        variable.assign(values.pop(variable.path))
    return TextGenerator(model, vocabulary.tokenizer)


def _model_config(settings):
    """The `TransformerConfig` that config.json describes."""
    settings.is_one_of("model_type", "gpt2")
    settings.are(FIXED)
    d_model = settings.integer("n_embd")
    dropout = settings.number("resid_pdrop", 0.1)
    of_embedding = settings.number("embd_pdrop", 0.1)
    check(
        of_embedding == dropout,
        f"{settings.path}: expected embd_pdrop and resid_pdrop to be one rate",
        embd_pdrop=of_embedding,
        resid_pdrop=dropout,
    )
    has_width = settings.values.get("n_inner") is not None
    activation = settings.is_one_of("activation_function", *ACTIVATIONS, default="gelu_new")
    options: dict[str, Any] = dict(
        num_layers=settings.integer("n_layer"),
        d_model=d_model,
        num_heads=settings.integer("n_head"),
        d_ff=settings.integer("n_inner") if has_width else 4 * d_model,
        dropout=dropout,
        attention_dropout=settings.number("attn_pdrop", 0.1),
        activation=ACTIVATIONS[activation],
        norm_first=True,
        max_length=settings.integer("n_positions", 2),
        layer_norm_epsilon=settings.number("layer_norm_epsilon", 1e-5),
        logits_bias=True,
    )
    with files.naming(settings.path):
        return TransformerConfig(**options)


def _read_weights(weights, config, rows):
    """The values of all variables by their paths; nothing may be left over.

    They are read before a model is made, so that no size is believed that the file does not have.
    """
    prefix = PREFIX if PREFIX + EMBEDDING in weights else ""
    size = max(rows) + 1
    values = {}
    for each in gpt2_weights(config, size):
        others = (HEAD,) if each.theirs == EMBEDDING else ()
        array = weights.take_shared((prefix + each.theirs, *others), each.shape)
        values |= each.to_ours(array)
    weights.check_all_taken("GPT2LMHeadModel")
    bias = np.zeros(len(rows), "float32")
    # Their logit is that of END, and this: logits may be far from 0, since only differences count.
    bias[[PADDING, UNKNOWN, START]] = files.UNWRITTEN
    embeddings = values[files.EMBEDDINGS][rows]
    return {**values, files.EMBEDDINGS: embeddings, files.LOGITS_BIAS: bias}
