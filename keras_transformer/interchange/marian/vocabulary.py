"""One vocabulary over two SentencePiece models, as Marian has it, in two tokenizers of ours."""

import pathlib
import re
from typing import NamedTuple

from ...checks import check
from ...ids import END, PADDING, START, UNKNOWN
from ...tokenizers.sampling import SPACE_MARK
from ...tokenizers.sentencepiece import SentencePieceTokenizer
from ..files import read_bytes, read_json

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
    ids = _read_ids(path)
    for token, id in ((END_TOKEN, end), (PADDING_TOKEN, padding)):
        check(
            ids.get(token) == id,
            f"{path}: expected {token} to have its id of config.json, {id}",
            id=ids.get(token),
        )
    check(UNKNOWN_TOKEN in ids, f"{path}: expected a token {UNKNOWN_TOKEN}", number=len(ids))
    source, target = (_read_model(folder / name) for name in (SOURCE, TARGET))

    special = [""] * 4
    special[PADDING], special[UNKNOWN], special[END] = PADDING_TOKEN, UNKNOWN_TOKEN, END_TOKEN
    special[START] = "<s>" if "<s>" not in ids else "<start>"
    rest = [token for token in sorted(ids, key=ids.__getitem__) if token not in special]
    in_source = {token: SPACE_MARK + token for token in rest if LANGUAGE.fullmatch(token)}
    known = {*special, *rest, *in_source.values()}
    unknown = [p.piece for p in source.pieces if p.type in _text_types() and p.piece not in known]
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


def _read_ids(path):
    """The ids of vocab.json: 0, 1, 2, ... in any order."""
    ids = read_json(path)
    plain = all(type(id) is int for id in ids.values())
    if not plain or sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(
            f"{path} must give every token an id of its own, from 0 to {len(ids) - 1}."
        )
    for token in ids:
        whole = not any(0xD800 <= ord(character) < 0xE000 for character in token)
        check(
            token and whole and "\0" not in token,
            f"{path} must hold tokens of valid characters",
            token=token[:50],
        )
    return ids


def _protos():
    """SentencePiece's own format, by protobuf."""
    try:
        import google.protobuf  # noqa: F401
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise ImportError(
            "Joining two SentencePiece models needs the package protobuf; install it with "
            "pip install protobuf."
        ) from None
    return sentencepiece_model_pb2


def _text_types():
    """The types of the pieces that a text may be segmented into."""
    types = _protos().ModelProto.SentencePiece
    return types.NORMAL, types.USER_DEFINED, types.BYTE


def _read_model(path):
    """The parsed SentencePiece model in a file."""
    protos, content = _protos(), read_bytes(path)

    from google.protobuf.message import DecodeError

    try:
        model = protos.ModelProto.FromString(content)
    except DecodeError:
        model = None
    if model is None or not model.pieces or not model.HasField("trainer_spec"):
        raise ValueError(f"{path} must hold a SentencePiece model; it does not. Download it again.")
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
    kinds = _protos().ModelProto.SentencePiece
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
    try:
        return SentencePieceTokenizer(new.SerializeToString(deterministic=True))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} cannot be joined with {VOCABULARY}: {reason:.150}.") from None
