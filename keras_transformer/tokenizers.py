"""Text to ids and back: learn a SentencePiece vocabulary, hold it in a KerasHub tokenizer.

KerasHub's tokenizer is what a saved model carries: its vocabulary becomes an asset of the
`.keras` file. Its own `tokenize` answers with ragged tensors inside a TensorFlow pipeline and with
lists elsewhere, so `encode` and `decode` read the same vocabulary with `sentencepiece` itself:
plain lists in and out, the same on every backend.
"""

import io
import logging
import operator
import weakref

import numpy as np

from .arguments import check

PADDING, UNKNOWN, START, END = range(4)

MODEL_TYPES = ("bpe", "unigram", "char", "byte")
DEFAULT_SIZE = 8000  # for some ten thousand sentences; the paper has 37,000 for 4.5 million
SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character,
RESERVED = "\u2585"  # and keeps this one for unknown characters: it cannot be learnt

_processors = weakref.WeakKeyDictionary()  # tokenizer -> (proto, processor)


def learn_tokenizer(texts, vocabulary_size=None, model_type="bpe"):
    """Learn a SentencePiece vocabulary; the same texts in the same order give the same one.

    Every character of the texts gets an id (but see "char") and nothing is normalised, so
    decode(encode(text)) == text for each of them. Three characters are the exception: U+2581 comes
    back as a space, U+2585 and NUL as unknown.

    Args:
        texts: Iterable of str. One vocabulary for two languages: learn_tokenizer(source + target).
        vocabulary_size: int or None, the most ids to make, the four special ones included; the
            texts may support fewer (a warning is logged). None: for "char" every character,
            else 8,000, or more if the characters alone need more; for "byte" always 261.
        model_type: "bpe" (merges, as in the paper), "unigram" (a language model over pieces),
            "char" (one id a character; where `vocabulary_size` is too small for all, the rare ones
            are unknown) or "byte" (one id a byte of UTF-8: no text has anything unknown).

    Returns:
        `keras_hub.tokenizers.SentencePieceTokenizer`, padding 0, unknown 1, start 2, end 3.

    Raises:
        ValueError: If there is no text, an item is not text, `model_type` is not known or
            `vocabulary_size` is too small.

    Source: Sennrich et al. 2016 (BPE); Kudo 2018 (unigram); Kudo and Richardson 2018.
    """
    texts = checked_texts(texts)
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"model_type must be one of {', '.join(MODEL_TYPES)}; "
            f"received model_type={model_type!r}."
        )
    if not any(texts):
        raise ValueError(
            "learn_tokenizer needs at least one text that is not empty; "
            f"received {len(texts)} texts, none with a character. Check the corpus."
        )
    # SentencePiece would skip a whole sentence for one reserved character, and miss characters
    # that occur only in "<s>" or at a line end, so we name the characters ourselves.
    characters = set().union(*texts) - {" ", SPACE_MARK, RESERVED, "\0"}
    if model_type == "byte":
        texts, characters = [" "], set()  # all else falls back to its bytes
    needed = len(characters) + 5 + 256 * (model_type == "byte")  # four special ids and the space
    if vocabulary_size is not None:
        vocabulary_size = _checked_size(vocabulary_size, needed, model_type)

    import keras_hub
    import sentencepiece

    one_each = model_type in ("char", "byte")
    default_size = needed if one_each else max(DEFAULT_SIZE, needed)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text.replace(RESERVED, " ") for text in texts),
        model_writer=model,
        model_type="char" if one_each else model_type,
        byte_fallback=model_type == "byte",
        vocab_size=vocabulary_size or default_size,
        hard_vocab_limit=False,  # a size that the texts do not support is lowered, not an error
        required_chars="".join(sorted(characters)),
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=not one_each,  # a word begins a line as it begins elsewhere
        # In bytes; a longer sentence would be left out without a word.
        max_sentence_length=max(4192, max(len(text.encode()) for text in texts)),
        pad_id=PADDING,
        unk_id=UNKNOWN,
        bos_id=START,
        eos_id=END,
        unk_surface="\u2047",  # no blanks around it: an unknown letter does not split its word
        minloglevel=2,  # errors only
    )
    tokenizer = keras_hub.tokenizers.SentencePieceTokenizer(proto=model.getvalue())
    if vocabulary_size and tokenizer.vocabulary_size() < vocabulary_size:
        logging.getLogger(__name__).warning(
            "The texts support a %s vocabulary of %d ids, not of vocabulary_size=%d.",
            model_type,
            tokenizer.vocabulary_size(),
            vocabulary_size,
        )
    return tokenizer


def encode(tokenizer, texts):
    """The ids of each text, without START, END or padding.

    Args:
        tokenizer: `keras_hub.tokenizers.SentencePieceTokenizer`, e.g. from `learn_tokenizer`.
        texts: Iterable of str. An empty text gives an empty list.

    Returns:
        List of lists of int, one a text.

    Raises:
        ValueError: If an item is not text (its position and type are named), or the vocabulary has
            other special ids than this package.
    """
    return _processor(tokenizer).encode(checked_texts(texts))


def encode_at_random(tokenizer, texts, alpha=0.1, seed=0):
    """The ids of each text, split into pieces at random: subword regularisation.

    Args:
        tokenizer: `keras_hub.tokenizers.SentencePieceTokenizer` of "bpe" or "unigram".
        texts: Iterable of str.
        alpha: float in [0, 1]. For "bpe", the chance that a merge is left out (BPE-dropout); 0:
            never. For "unigram", a split has a chance in proportion to its probability ** alpha.
        seed: int from 0, or several. The same seed and texts give the same ids.

    Returns:
        List of lists of int, one a text; decoded they are the texts again.

    Raises:
        ValueError: As `encode`; alpha is out of range; or the vocabulary is of characters.

    Source: Provilkov et al. 2020 (bpe, alpha = 0.1); Kudo 2018 (unigram).
    """
    import sentencepiece

    check(0 <= alpha <= 1, "alpha must be in [0, 1]", alpha=alpha)
    processor, texts = _processor(tokenizer), checked_texts(texts)
    (state,) = np.random.SeedSequence(seed).generate_state(1)
    # The seed counts for threads that begin after it: here the one that encodes.
    sentencepiece.set_random_generator_seed(int(state))
    sampling = dict(enable_sampling=True, alpha=alpha, nbest_size=-1, num_threads=1)
    try:
        return processor.encode(texts, **sampling)
    except RuntimeError:
        raise ValueError(
            "A vocabulary of characters splits a text in one way only; learn one of model_type "
            "bpe or unigram."
        ) from None


def decode(tokenizer, sequences):
    """The text of each sequence of ids, up to its first END; padding and START are dropped.

    Args:
        tokenizer: `keras_hub.tokenizers.SentencePieceTokenizer`.
        sequences: Sequences of int: lists of any lengths, or an array or tensor (number, length).

    Returns:
        List of str, one a sequence. The unknown id reads U+2047, a double question mark.

    Raises:
        ValueError: If an id is not in the vocabulary (its sequence and position are named).
    """
    processor = _processor(tokenizer)
    pieces = []
    for n, ids in enumerate(_as_lists(sequences)):
        ids = ids[: ids.index(END)] if END in ids else ids
        _check_ids(processor, ids, n)
        pieces.append([i for i in ids if i not in (PADDING, START)])
    return [processor.decode(ids) for ids in pieces]


def token_strings(tokenizer, ids):
    """What each id stands for, to label an axis; U+2581 (a low bar) marks a space.

    Args:
        tokenizer: `keras_hub.tokenizers.SentencePieceTokenizer`.
        ids: int, (length,): one sequence.

    Returns:
        List of str, one an id; the special ids read <pad>, <unk>, <s> and </s>.

    Raises:
        ValueError: If an id is not in the vocabulary (its position is named).
    """
    processor = _processor(tokenizer)
    (ids,) = _as_lists([ids])
    _check_ids(processor, ids, 0)
    return [processor.id_to_piece(i) for i in ids]


def _processor(tokenizer):
    """The tokenizer's vocabulary as `sentencepiece` reads it, made once a tokenizer."""
    proto, processor = _processors.get(tokenizer, (None, None))
    if processor is not None and proto is tokenizer.proto:  # loading assets replaces the proto
        return processor
    if tokenizer.proto is None:
        raise ValueError(
            "The tokenizer has no vocabulary yet: learn one with learn_tokenizer, "
            "or load the model that holds it."
        )

    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    special = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if special != (PADDING, UNKNOWN, START, END):
        raise ValueError(
            "The vocabulary's padding, unknown, start and end must have the ids (0, 1, 2, 3); "
            f"received {special}, where -1 is none. Learn it with learn_tokenizer, or with "
            "SentencePiece's pad_id=0, unk_id=1, bos_id=2, eos_id=3."
        )
    _processors[tokenizer] = (tokenizer.proto, processor)
    return processor


def checked_texts(texts):
    """The texts as a list, once they are known to be valid str."""
    if isinstance(texts, (str, bytes)):
        raise ValueError(
            f"Expected a list of texts; received one {type(texts).__name__}. "
            "Put it in a list: [text]."
        )
    texts = list(texts)
    for n, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"Every text must be a str; item {n} is of type {type(text).__name__}: "
                f"{text!r:.60}. Drop it, or make it text."
            )
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"Every text must be valid Unicode; item {n} has half a surrogate pair at "
                    f"character {error.start}. Read it as UTF-8, without 'surrogateescape'."
                ) from None
    return texts


def _checked_size(size, needed, model_type):
    smallest = min(6, needed) if model_type == "char" else needed  # "char" may drop rare ones
    try:
        size = operator.index(size)
    except TypeError:
        pass  # 8e3: refused below
    if not isinstance(size, int) or size < smallest:
        raise ValueError(
            f"vocabulary_size must be an integer of at least {smallest} for these texts and "
            f"model_type={model_type!r} (four special ids, the space, the characters); "
            f"received vocabulary_size={size!r}. Raise it, or leave it None."
        )
    return size


def _as_lists(sequences):
    if hasattr(sequences, "shape"):
        from keras import ops

        sequences = ops.convert_to_numpy(sequences)
    return [ids.tolist() if hasattr(ids, "tolist") else [int(i) for i in ids] for ids in sequences]


def _check_ids(processor, ids, n):
    size = processor.vocab_size()
    if ids and not (min(ids) >= 0 and max(ids) < size):
        position = next(p for p, i in enumerate(ids) if not 0 <= i < size)
        raise ValueError(
            f"Every id must be from 0 to {size - 1}; received {ids[position]} at position "
            f"{position} of sequence {n}. Use the tokenizer that belongs to the model."
        )
