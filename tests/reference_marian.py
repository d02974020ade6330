"""Marian models of Hugging Face's own class, with real vocabularies, trained for seconds."""

import io
import json
import random

import numpy as np
import pytest
import sentencepiece

# The gate has them all, on each backend; who installs less can still run the other tests.
OPTIONAL = dict(reason="the models to compare with are optional", exc_type=ImportError)
torch = pytest.importorskip("torch", **OPTIONAL)
transformers = pytest.importorskip("transformers", **OPTIONAL)
pytest.importorskip("safetensors", **OPTIONAL)
pytest.importorskip("google.protobuf", **OPTIONAL)
torch.set_num_threads(1)  # models this small are ten times slower with two
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SMALL = dict(d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64)
OPUS = dict(d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048)
LANGUAGES = [">>fra<<", ">>deu<<"]


class Language:
    """Made-up words; two languages share some letters."""

    def __init__(self, seed, letters):
        rng = random.Random(seed)
        self.words = ["".join(rng.choices(letters, k=rng.randint(2, 7))) for _ in range(300)]

    def sentences(self, number, seed=0):
        """Some sentences of 1 to 9 words; the same seed gives the same ones."""
        rng = random.Random(seed)
        return [" ".join(rng.choices(self.words, k=rng.randint(1, 9))) for _ in range(number)]


SOURCE, TARGET = Language(1, "abcdefghijklmno"), Language(2, "ijklmnopqrstuväß")


def texts(number):
    """Sentences to translate, among them some with characters that the source never had."""
    rare = ["ß äß xyz abc", "Zebra 草地 abc", "a ß b", ">>fra<< abc de", ">>deu<< ß", "  abc  de "]
    return (rare + SOURCE.sentences(number, seed=-1))[:number]


def train_pieces(sentences, size):
    """The bytes of a unigram model with SentencePiece's own special ids and normalization."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def write_marian(folder, sizes=SMALL, vocabulary_size=None, shuffle=True, updates=500, seed=0):
    """Writes a model as Opus-MT's are.

    Args:
        folder: pathlib.Path.
        sizes: dict, of the encoder; the decoder has the same.
        vocabulary_size: int; more tokens than the pieces make are not pieces. None: no others.
        shuffle: bool, whether some pieces are missing in vocab.json, and the special tokens stand
            somewhere among the others.
        updates: int, of a training that makes the answers differ from text to text.
        seed: int.

    Returns:
        MarianMTModel, MarianTokenizer.
    """
    rng = random.Random(seed)
    pieces = set()
    for name, language in (("source.spm", SOURCE), ("target.spm", TARGET)):
        proto = train_pieces(language.sentences(2000), 200)
        (folder / name).write_bytes(proto)
        processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
        pieces |= {processor.id_to_piece(i) for i in range(3, processor.vocab_size())}
    tokens = sorted(pieces)
    rng.shuffle(tokens)
    tokens = ["</s>", "<unk>", *tokens[10 * shuffle :], *LANGUAGES]
    tokens += [f"▁word{n}" for n in range((vocabulary_size or 0) - len(tokens) - 1)]
    tokens.append("<pad>")
    if shuffle:
        rng.shuffle(tokens)
    ids = {token: id for id, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(ids), "utf-8")
    decoder = {name.replace("encoder", "decoder"): size for name, size in sizes.items()}
    config = transformers.MarianConfig(
        vocab_size=len(tokens),
        **{**decoder, **sizes},
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=ids["<pad>"],
        decoder_start_token_id=ids["<pad>"],
        eos_token_id=ids["</s>"],
        forced_eos_token_id=None,
    )
    model = transformers.MarianMTModel(config).eval()
    _randomize(model, seed)
    model.save_pretrained(folder)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    _train(model, tokenizer, updates)
    model.generation_config.update(num_beams=6, bad_words_ids=[[ids["<pad>"]]], max_length=512)
    model.save_pretrained(folder)
    return model, tokenizer


def _train(model, tokenizer, updates):
    """Word by word into the other language, by a dictionary."""
    words = dict(zip(SOURCE.words, TARGET.words, strict=True))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for seed in range(updates):
        source = SOURCE.sentences(32, seed)
        target = [" ".join(words[word] for word in text.split()) for text in source]
        batch = tokenizer(source, text_target=target, padding=True, return_tensors="pt")
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _randomize(model, seed):
    """Weights far from zero and one, so that none of them could be lost unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" in name:
                continue
            weight.normal_(generator=generator)
            if weight.ndim == 2 and name != "final_logits_bias":
                weight *= weight.shape[1] ** -0.5
            elif "norm" in name:
                weight *= 0.3
                weight += name.endswith("weight")


def their_logits(model, source_ids, target_ids):
    """Logits of a MarianMTModel for its own ids, padded on the right."""
    source_ids, target_ids = torch.tensor(source_ids), torch.tensor(target_ids)
    mask = (source_ids != model.config.pad_token_id).long()
    with torch.no_grad():
        inputs = dict(input_ids=source_ids, attention_mask=mask, decoder_input_ids=target_ids)
        return model(**inputs).logits.numpy()


def their_translations(model, tokenizer, texts, **search):
    """The translations of a MarianMTModel, with our limits of their lengths.

    Returns:
        list of str; list of bool, whether each was cut off at its limit.
    """
    rows = [tokenizer(text).input_ids for text in texts]
    translations, cut_off = [""] * len(texts), [False] * len(texts)
    # At the limit they would write an end in place of the last token.
    model.generation_config.forced_eos_token_id = None
    for length in sorted(set(map(len, rows))):
        numbers = [n for n, row in enumerate(rows) if len(row) == length]
        with torch.no_grad():
            ids = model.generate(
                input_ids=torch.tensor([rows[n] for n in numbers]),
                max_new_tokens=2 * length + 16,
                min_new_tokens=1,
                **{"do_sample": False, **search},
            )
        for number, text in zip(
            numbers, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True
        ):
            translations[number] = text
        for number, row in zip(numbers, ids[:, 1:], strict=True):
            cut_off[number] = tokenizer.eos_token_id not in row
    return translations, cut_off


def ids_for_logits(vocabulary, tokenizer, number, seed=0):
    """Source and target ids of ours, padded, and the same of theirs."""
    rng, rows = np.random.default_rng(seed), np.array(vocabulary.rows)
    written = np.setdiff1d(np.arange(4, len(rows)), vocabulary.unwritten)
    lengths = rng.integers(1, 12, number)
    source = np.zeros((number, 12), "int32")
    for row, length in zip(source, lengths, strict=True):
        row[:length] = rng.choice(written, length)
        row[length] = 3
    target = rng.choice(written, (number, 9)).astype("int32")
    target[:, 0] = 2
    theirs = np.where(source == 0, tokenizer.pad_token_id, rows[source]), rows[target]
    return (source, target), theirs
