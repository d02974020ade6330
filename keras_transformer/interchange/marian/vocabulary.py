"""One vocabulary over two SentencePiece models, as Marian has it, in two tokenizers of ours."""

import pathlib
import re
from typing import NamedTuple

from ...checks import check, imported
from ...ids import END, PADDING, START, UNKNOWN
from ...tokenizers.byte_pairs import tokens_in_order
from ...tokenizers.sampling import SPACE_MARK
from ...tokenizers.sentencepiece import SentencePieceTokenizer
from ..files import check_is_file, naming, read_json

VOCABULARY, SOURCE, TARGET = "vocab.json", "source.spm", "target.spm"
END_TOKEN, UNKNOWN_TOKEN, PADDING_TOKEN = "</s>", "<unk>", "<pad>"
LANGUAGE = re.compile(">>.+<<")  # a token before a text: the language to translate into


class JointVocabulary(NamedTuple):
    """Two tokenizers with the same ids.

    Args:
        source_tokenizer, target_tokenizer: `SentencePieceTokenizer`.
        rows: list of int, for each of our ids the id in vocab.json whose weights it gets. START
            gets those of their padding, with which their decoder starts.
        unwritten: list of int, ids of ours that vocab.json lacks: padding, and pieces of the source
            that are read as unknown.
    """

    source_tokenizer: SentencePieceTokenizer
    target_tokenizer: SentencePieceTokenizer
    rows: list[int]
    unwritten: list[int]


def read_joint_vocabulary(folder: pathlib.Path, end: int, padding: int) -> JointVocabulary:
    """The vocabulary in a folder: vocab.json, source.spm and target.spm.

    Each SentencePiece model is rewritten: its pieces stand in the order of the joint vocabulary,
    after our four special ids; pieces that it lacks are unused, so that it segments as before. A
    piece of the source that vocab.json lacks is unknown there: it gets an id of its own, with the
    weights of the unknown token; one of the target is left out. A token that names a language, such
    as >>fra<<, is recognized at the beginning of a word of the source.

    Args:
        folder: pathlib.Path.
        end, padding: int, the ids of these tokens according to config.json.

    Raises:
        FileNotFoundError: A file is missing.
        ImportError: protobuf is not installed.
        ValueError: A file is damaged, or the three do not fit together.

    Source: SentencePiece, `SetVocabulary`.
    """
    path = folder / VOCABULARY
    ids = read_json(path)
    with naming(path):
        ordered = tokens_in_order(ids)
        for token in ordered:  # UTF-8 has no half of a surrogate pair
            check(token and b"\0" not in token.encode(), "Expected valid tokens", token=token[:50])
        for token, id in {END_TOKEN: end, PADDING_TOKEN: padding}.items():
            expected = f"Expected {token} to have its id of config.json, {id}"
            check(ids.get(token) == id, expected, id=ids.get(token))
        check(UNKNOWN_TOKEN in ids, f"Expected a token {UNKNOWN_TOKEN}", number=len(ids))
    source, target = (_read_model(folder / name) for name in (SOURCE, TARGET))

    special = [""] * 4
    special[PADDING], special[UNKNOWN], special[END] = PADDING_TOKEN, UNKNOWN_TOKEN, END_TOKEN
    special[START] = "<s>" if "<s>" not in ids else "<start>"
    rest = [token for token in ordered if token not in special]
    in_source = {token: SPACE_MARK + token for token in rest if LANGUAGE.fullmatch(token)}
    known = {*special, *rest, *in_source.values()}
    types = source.SentencePiece
    of_texts = types.NORMAL, types.USER_DEFINED, types.BYTE
    unknown = [p.piece for p in source.pieces if p.type in of_texts and p.piece not in known]
    tokens = [*special, *rest, *unknown]

    target.trainer_spec.unk_surface = ""  # what Marian writes for it
    unknown_id, padding_id = ids[UNKNOWN_TOKEN], ids[PADDING_TOKEN]
    rows = [padding_id, unknown_id, padding_id, end, *(ids[token] for token in rest)]
    return JointVocabulary(
        _rewritten(source, tokens, folder / SOURCE, renamed=in_source),
        _rewritten(target, tokens, folder / TARGET, hidden=set(unknown)),
        rows + [unknown_id] * len(unknown),
        [PADDING, *range(len(rows), len(tokens))],
    )


def _read_model(path):
    """The SentencePiece model in a file, parsed by protobuf."""
    imported("google.protobuf", "Joining two SentencePiece models", "protobuf")
    protos = imported("sentencepiece.sentencepiece_model_pb2", "Reading a SentencePiece model")
    content = check_is_file(path).read_bytes()
    with naming(path):
        model = protos.ModelProto.FromString(content)
        whole = model.pieces and model.HasField("trainer_spec")
        check(whole, "Expected a SentencePiece model", bytes=len(content))
    return model


def _rewritten(model, tokens, path, renamed=(), hidden=()):
    """The tokenizer of a model whose pieces stand in the order of `tokens`.

    Args:
        model: ModelProto.
        tokens: list of str, the special ones first.
        path: pathlib.Path of the model, for errors.
        renamed: dict, other names of some tokens, which are then pieces that nothing splits.
        hidden: set of str, tokens that no text may contain.
    """
    kinds = model.SentencePiece
    of_model = {each.piece: each for each in model.pieces}
    new = type(model)(trainer_spec=model.trainer_spec, normalizer_spec=model.normalizer_spec)
    for id, token in enumerate(tokens):
        piece = new.pieces.add(piece=token, score=0.0, type=kinds.UNUSED)
        if id < 4:
            piece.type = kinds.UNKNOWN if id == UNKNOWN else kinds.CONTROL
        elif token in renamed:
            piece.piece, piece.type = renamed[token], kinds.USER_DEFINED
        elif token in hidden:
            piece.type = kinds.CONTROL
        elif token in of_model and of_model[token].type != kinds.UNKNOWN:
            piece.CopyFrom(of_model[token])
    spec = new.trainer_spec
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = tokens[:4]
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PADDING, UNKNOWN, START, END
    spec.vocab_size = len(tokens)
    of_bytes = sum(piece.type == kinds.BYTE for piece in new.pieces)
    spec.byte_fallback = spec.byte_fallback and of_bytes == 256
    unused = any(piece.type == kinds.UNUSED for piece in new.pieces)
    if unused and spec.model_type != spec.UNIGRAM:  # other types also merge unused pieces
        raise ValueError(
            f"{path} must be of type unigram, or contain every token of {VOCABULARY}; received "
            f"type {spec.ModelType.Name(spec.model_type).lower()}."
        )
    with naming(path):
        return SentencePieceTokenizer(new.SerializeToString(deterministic=True))
