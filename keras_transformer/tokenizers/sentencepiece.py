"""Text to ids and back by SentencePiece, and how to learn its vocabulary."""

import io
import logging
import re
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from ..checks import check, imported
from ..ids import END, PADDING, START, UNKNOWN
from . import sampling
from .base import Tokenizer, checked_texts
from .processor import MODEL_TYPES, encode, make_processor
from .sampling import SPACE_MARK

DEFAULT_SIZE = 8000  # for some ten thousand sentences; the paper has 37,000 for 4.5 million
UNKNOWN_MARK = "\u2585"  # SentencePiece keeps it for unknown characters: it cannot be learned
# A piece that can be reserved: not the name of a special id or of a byte, nor with white space.
RESERVABLE = re.compile(
    rf"(?!(?:<pad>|<unk>|</?s>|<0x[0-9A-F]{{2}}>)$)[^\s\0{SPACE_MARK}{UNKNOWN_MARK}]+"
)
PRECEDENCE = 30  # of reserved pieces in a unigram model: log-probability per character


@keras.saving.register_keras_serializable(package="keras_transformer")
class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece vocabulary: 0 is padding, 1 unknown, 2 start, 3 end.

    U+2581 (a low bar) marks a space in `tokens`; the special ids are <pad>, <unk>, <s> and </s>.

        tokenizer = train_tokenizer(["the cat sat", "the mat"])
        tokenizer.decode(tokenizer.encode(["the cat"]))  # ["the cat"]

    Args:
        proto: bytes, the serialized SentencePiece model; None: `load_assets` will provide it.

    Raises:
        ValueError: The vocabulary has other special ids.

    Source: Kudo and Richardson 2018; Provilkov et al. 2020 (sampling for bpe, alpha = 0.1); Kudo
        2018 (for unigram).
    """

    vocabulary_file = "vocabulary.spm"

    def __init__(self, proto: bytes | None = None, dtype: Any = "int32", **kwargs: Any):
        super().__init__(proto, dtype, **kwargs)

    @property
    def proto(self) -> bytes | None:
        """bytes, the serialized SentencePiece model, once there is a vocabulary."""
        return self.serialized

    def unknown_characters(self, texts: Iterable[str]) -> list[int]:
        """How many characters of each text are read as unknown; a run of them may be one id."""
        texts = checked_texts(texts)
        rows = self.encode(texts)
        numbers = [n for n, ids in enumerate(rows) if UNKNOWN in ids]
        surfaces = self._ready().encode([texts[n] for n in numbers], out_type=str)
        unknown = [0] * len(texts)
        for number, pieces_of_text in zip(numbers, surfaces, strict=True):
            pairs = zip(rows[number], pieces_of_text, strict=True)
            unknown[number] = sum(len(piece) for each, piece in pairs if each == UNKNOWN)
        return unknown

    def vocabulary_size(self) -> int:
        """int, number of ids, the four special ones included."""
        return self._ready().vocab_size()

    def to_keras_hub(self) -> Any:
        """The same vocabulary as a tokenizer of KerasHub, for `tf.data` pipelines.

        Returns:
            `keras_hub.tokenizers.SentencePieceTokenizer`.
        """
        self._ready()

        import keras_hub

        return keras_hub.tokenizers.SentencePieceTokenizer(proto=self.proto)

    def _read(self, serialized):
        return make_processor(serialized)

    def _encode(self, texts):
        return encode(self._processor, texts)

    def _sample(self, texts, alpha, seed):
        return sampling.sample(self._processor, texts, alpha, seed)

    def _texts(self, rows):
        return [self._processor.decode(ids) for ids in rows]

    def _token(self, id):
        return self._processor.id_to_piece(id)


def train_tokenizer(
    texts: Iterable[str],
    vocabulary_size: int | None = None,
    model_type: str = "bpe",
    reserve: Iterable[str] = (),
) -> SentencePieceTokenizer:
    """Learns a SentencePiece vocabulary; the same texts in the same order give the same one.

    Every character of the texts gets an id (but see "char") and nothing is normalized, so
    decode(encode(text)) == text for each of them. Four characters are the exception: U+2581
    decodes to a space; U+2585, U+001F (but for "byte") and NUL decode to unknown.

    Args:
        texts: Iterable of str. One vocabulary for two languages: train_tokenizer(source + target).
        vocabulary_size: int or None, the maximum number of ids, the four special ones included;
            the texts may support fewer (a warning is logged). None: for "char" every character,
            else 8,000, or more if the characters alone need more; for "byte" always 261.
        model_type: "bpe" (merges, as in the paper), "unigram" (a language model over pieces),
            "char" (one id per character; where `vocabulary_size` is too small for all, the rare
            ones are unknown) or "byte" (one id per byte of UTF-8: no text contains anything
            unknown).
        reserve: Iterable of str, pieces that have an id each, from 4 on, and are never split, such
            as "<term>"; the longest one that a text has at a place counts.

    Returns:
        `SentencePieceTokenizer`.

    Raises:
        ImportError: protobuf, which reserved pieces of "unigram" need, is not installed.
        ValueError: There is no text, an item is not text, SentencePiece finds nothing to learn
            from, `model_type` is not known, `vocabulary_size` is too small, or a piece cannot be
            reserved.

    Source: Sennrich et al. 2016 (BPE); Kudo 2018 (unigram); Kudo and Richardson 2018.
    """
    texts = checked_texts(texts)
    check(
        model_type in MODEL_TYPES,
        f"model_type must be one of {', '.join(MODEL_TYPES)}",
        model_type=model_type,
    )
    if not any(texts):
        raise ValueError(
            "train_tokenizer needs at least one text that is not empty; "
            f"received {len(texts)} texts, none with a character. Check the corpus."
        )
    reserve = checked_texts(reserve)
    for piece in reserve:
        check(
            RESERVABLE.fullmatch(piece) and reserve.count(piece) == 1,
            "A reserved piece must be given once, have no white space, and be other than the names "
            "of special ids, such as <s>, and of bytes, such as <0x0A>",
            piece=piece,
        )
    # SentencePiece would skip a whole sentence for one reserved character, and miss characters that
    # occur only in "<s>" or at the end of a line, so we name the characters ourselves.
    characters = set().union(*texts) - {" ", SPACE_MARK, UNKNOWN_MARK, "\0", *reserve}
    if model_type == "byte":
        characters = set()
    fewest = 5 + len(reserve)  # four special ids and the space
    needed = len(characters) + fewest + 256 * (model_type == "byte")
    if vocabulary_size is not None:
        # "char" may drop rare ones
        smallest = min(fewest + 1, needed) if model_type == "char" else needed
        whole = isinstance(vocabulary_size, (int, np.integer)) and vocabulary_size >= smallest
        check(
            whole,
            f"vocabulary_size must be an integer of at least {smallest} for these texts and "
            f"model_type={model_type!r} (four special ids, the space, the reserved pieces, the "
            "characters), or None",
            vocabulary_size=vocabulary_size,
        )
    default_size = needed if model_type in ("char", "byte") else max(DEFAULT_SIZE, needed)
    proto = _train(texts, vocabulary_size or default_size, model_type, characters, reserve)
    if reserve and model_type == "unigram":
        proto = _preferring_reserved(proto)
    tokenizer = SentencePieceTokenizer(proto)
    if vocabulary_size and tokenizer.vocabulary_size() < vocabulary_size:
        logging.getLogger(__name__).warning(
            "The texts support a %s vocabulary of %d ids, not of vocabulary_size=%d.",
            model_type,
            tokenizer.vocabulary_size(),
            vocabulary_size,
        )
    return tokenizer


def _preferring_reserved(proto):
    """The same unigram model, with less for each character that is not in a reserved piece.

    The scores of SentencePiece would split some of these pieces. All ways to split the other
    characters lose as much, so that the best one is the same.
    """
    imported("google.protobuf", "Reserving pieces of a unigram vocabulary", "protobuf")
    protos = imported("sentencepiece.sentencepiece_model_pb2", "Reserving pieces")
    model = protos.ModelProto.FromString(proto)
    for piece in model.pieces:
        if piece.type == piece.NORMAL:
            piece.score -= PRECEDENCE * len(piece.piece)
    return model.SerializeToString()


def _train(texts, vocabulary_size, model_type, characters, reserve):
    """The bytes of a SentencePiece model."""
    import sentencepiece

    one_each = model_type in ("char", "byte")
    known = (text.replace(UNKNOWN_MARK, " ") for text in texts)
    sentences = [" "] if model_type == "byte" else known
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="char" if one_each else model_type,
            byte_fallback=model_type == "byte",  # everything but the space becomes its bytes
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,  # a size that the texts do not support is lowered
            required_chars="".join(sorted(characters)),
            user_defined_symbols=reserve,
            character_coverage=1.0,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=not one_each,  # a word is the same piece at the start and inside
            # In bytes; a longer sentence would be skipped silently.
            max_sentence_length=max(4192, max(len(text.encode()) for text in texts)),
            pad_id=PADDING,
            unk_id=UNKNOWN,
            bos_id=START,
            eos_id=END,
            unk_surface="\u2047",  # without spaces, so that an unknown letter splits no word
            minloglevel=2,  # errors only
        )
    except RuntimeError as error:
        raise ValueError(
            f"SentencePiece finds nothing to learn from in {len(texts)} texts: each consists of "
            "line ends, NUL characters, reserved pieces or names of special ids such as <s> alone. "
            "Check the corpus."
        ) from error
    return model.getvalue()
