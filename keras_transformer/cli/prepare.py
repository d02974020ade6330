r"""Prepare a corpus that need not fit into memory: clean, tokenize, write shards of ids.

  keras-transformer prepare corpora/en-de --source "news.*.en.gz" --target "news.*.de.gz" \
      --vocabulary-size 32000
  keras-transformer prepare corpora/more --pairs more.tsv --vocabulary-from corpora/en-de
  zcat crawl.jsonl.gz | keras-transformer prepare corpora/crawl --pairs - --json-lines \
      --vocabulary-from runs/en-de/model.keras
  keras-transformer prepare corpora/books --texts "books/*.txt" treebank.conllu

Then train, with validation data from files:

  keras-transformer train translation --prepared corpora/en-de \
      --valid-source val.en --valid-target val.de
  keras-transformer train language-model --prepared corpora/books --valid valid.txt

It needs array-record: pip install ".[scale]". A "-" is the standard input. Interrupted? Repeat the
command: it continues after the last complete shard. docs/scale.md says what it costs.
"""

import argparse
import functools
import itertools
import os
from typing import Any

import numpy as np

from .. import data
from ..data.cleaning import PRESET
from ..data.prepared import DEFAULT_SAMPLE
from ..ids import UNKNOWN
from ..tasks import addresses, pretrained
from ..tokenizers.processor import MODEL_TYPES
from .files import check_used, load_task

SCANNED = 10_000  # examples in which unknown tokens are counted
FILTERS = ("lowercase", "max_characters", "max_ratio", "unique")  # of pairs


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("output", metavar="FOLDER", help="folder to write the corpus to")
    files: Any = {"nargs": "+", "metavar": "FILE"}
    add("--source", **files, help="sentences to translate from, one per line, plain or compressed")
    add("--target", **files, help="their translations, line by line, in as many files")
    pairs = "instead of both: pairs in columns separated by TAB; or .jsonl, .parquet"
    add("--pairs", **files, help=pairs)
    texts = (
        "instead of pairs: texts of a language model, one per line; or .conllu, .jsonl, .parquet"
    )
    add("--texts", **files, help=texts)
    add("--json-lines", action="store_true", help="read --pairs as JSON Lines, whatever its name")
    add("--quoted", action="store_true", help="read --pairs by the rules of CSV")
    sides = (
        "columns of --pairs (default: 1 2), fields of .jsonl and .parquet, languages of --dataset"
    )
    add("--sides", nargs=2, metavar=("FROM", "TO"), help=sides)
    add("--dataset", metavar="NAME", help="instead of files: tfds:NAME; or hf:NAME, hf:FOLDER")
    add("--split", default="train", help="split of --dataset (default: train)")
    feature = "feature of --dataset, or field of .jsonl and .parquet, that contains the text"
    add("--feature", metavar="NAME", help=feature)
    add("--data-dir", metavar="FOLDER", help="folder where tensorflow-datasets keeps its data")
    add("--download", action="store_true", help="download the dataset if necessary")
    add("--vocabulary", choices=MODEL_TYPES, default="bpe", help="tokenizer type (default: bpe)")
    size = "maximum number of ids (default: all characters, or 8,000 subwords)"
    add("--vocabulary-size", type=int, metavar="N", help=size)
    reserve = "pieces of the vocabulary that are never split, such as '<term>'"
    add("--reserve", nargs="+", default=(), metavar="PIECE", help=reserve)
    separate = "learn one vocabulary per side instead of a shared one"
    add("--separate-vocabularies", action="store_true", help=separate)
    given = "model (.keras), corpus or SentencePiece model whose vocabulary to use"
    add("--vocabulary-from", metavar="PATH", help=given)
    sample = f"number of examples to learn a vocabulary from (default: {DEFAULT_SAMPLE:,})"
    add("--sample", type=int, default=DEFAULT_SAMPLE, metavar="N", help=sample)
    forms: Any = {"choices": ("NFC", "NFKC", "none"), "default": "NFC"}
    add("--normalization", **forms, help="Unicode normal form (default: NFC)")
    add("--lowercase", action="store_true", help="lowercase both sides")
    longest = "maximum length of a side, in characters (default: 1000)"
    add("--max-characters", type=int, default=1000, metavar="N", help=longest)
    add("--max-ratio", type=float, metavar="R", help="maximum ratio of the lengths of the sides")
    add("--unique", action="store_true", help="drop repeated pairs")
    implausible = "drop copies and pairs with other digits or scripts; with --unique --max-ratio 9"
    add("--clean", action="store_true", help=implausible)
    add("--processes", type=int, metavar="N", help="number of processes (default: one per core)")
    add("--overwrite", action="store_true", help="replace a corpus that FOLDER already contains")


def run(options: argparse.Namespace) -> None:
    """Writes the corpus, and prints what it holds."""
    from ..data.prepared.preparation import CORPUS_FILE, FILES  # imports Keras

    read, kind, origin = _input(options)
    check_used(options, _unused(options, kind))
    if options.overwrite:
        given = options.vocabulary_from
        corpus_file = [] if given is None else [given, os.path.join(given, CORPUS_FILE)]
        paths = [path for path in origin if isinstance(path, str)]
        FILES.check_inputs(options.output, [*paths, *corpus_file])
    cleaning = _cleaning(options, kind)
    corpus = data.prepare_corpus(
        options.output,
        read,
        kind,
        origin=origin,
        files=() if options.dataset else origin,
        # A pipe, such as the standard input or <(zcat FILE), cannot be read twice.
        read_once=not options.dataset and not all(map(os.path.isfile, origin)),
        tokenizers=_given_tokenizers(options, kind),
        vocabulary_size=options.vocabulary_size,
        model_type=options.vocabulary,
        reserve=[
            data.normalized(piece, cleaning["normalization"], options.lowercase)
            for piece in options.reserve
        ],
        separate_vocabularies=options.separate_vocabularies,
        sample=options.sample,
        cleaning=cleaning,
        num_processes=options.processes,
        overwrite=options.overwrite,
    )
    tokens = " and ".join(f"{n:,}" for n in corpus.lengths.sum(axis=0, dtype="int64"))
    tokenizers = dict.fromkeys(corpus.tokenizers())
    sizes = " and ".join(f"{each.vocabulary_size():,}" for each in tokenizers)
    print(
        f"{options.output} holds {len(corpus):,} {corpus.kind} of {tokens} tokens in "
        f"{len(corpus.shard_paths)} shards; vocabulary: {sizes} ids."
    )
    step = -(-len(corpus) // SCANNED)
    ids = np.concatenate([ids for n in range(0, len(corpus), step) for ids in corpus[n]])
    if share := np.mean(ids == UNKNOWN):
        print(f"Unknown to the vocabulary: {share:.2%} of the tokens; a run of characters is one.")


def _input(options):
    """A function that reads the examples, their kind, and where they come from."""
    given = [name for name in ("source", "pairs", "texts", "dataset") if getattr(options, name)]
    if len(given) != 1 or bool(options.source) != bool(options.target):
        received = " and ".join(f"--{name}" for name in given) or "none of them"
        options.usage_error(
            "Give one of --source (with --target), --pairs, --texts and --dataset; received "
            f"{received}."
        )
    if options.dataset:
        return _dataset(options)
    if options.texts:
        paths = data.expand_files(options.texts)
        field = options.feature or "text"
        lines = _chain(data.iterate_texts, [(path, field) for path in paths])
        return lambda: ((line,) for line in lines()), "texts", paths
    if options.source:
        files = data.parallel_files(options.source, options.target)
        paths = [path for side in zip(*files, strict=True) for path in side]
        return _chain(data.iterate_files, files), "pairs", paths
    paths = data.expand_files(options.pairs)
    form = *(options.sides or (None, None)), options.json_lines, options.quoted
    return _chain(data.iterate_pairs, [(path, *form) for path in paths]), "pairs", paths


def _unused(options, kind):
    """The options that these files do not use, each with what it needs."""
    learned = "vocabulary vocabulary_size reserve separate_vocabularies sample".split()
    unused = (  # whether these are not used, what they need, and their names
        (kind == "texts", "pairs of texts", (*FILTERS, "clean", "separate_vocabularies", "sides")),
        (not options.pairs, "--pairs", ["json_lines", "quoted"]),
        (options.source, "--pairs or --dataset", ["sides"]),
        (not options.dataset, "--dataset", "split data_dir download".split()),
        (not (options.dataset or options.texts), "--dataset or --texts", ["feature"]),
        (options.vocabulary_from, "a vocabulary to learn, without --vocabulary-from", learned),
    )
    return {name: needed for holds, needed, names in unused if holds for name in names}


def _chain(read, arguments):
    """A function that reads files one after the other; their names are checked now."""
    reads = [functools.partial(read, *each) for each in arguments]
    for each in reads:
        each()
    return lambda: itertools.chain.from_iterable(each() for each in reads)


def _dataset(options):
    stored = {"data_dir": options.data_dir, "download": options.download}
    name, split = options.dataset.removeprefix("tfds:"), options.split
    origin = [options.dataset, split, options.sides, options.feature]
    if options.feature:
        read = functools.partial(data.iterate_text_split, name, split, options.feature, **stored)
        return lambda: ((text,) for text in read()), "texts", origin
    source, target = options.sides or (None, None)
    read = functools.partial(data.iterate_split, name, split, source, target, **stored)
    return read, "pairs", origin


def _cleaning(options, kind):
    names = ("normalization", *(FILTERS if kind == "pairs" else ()))
    cleaning = {name: getattr(options, name) for name in names}
    if options.clean:
        cleaning |= PRESET | {name: value for name, value in cleaning.items() if value}
    if cleaning["normalization"] == "none":
        cleaning["normalization"] = None
    return cleaning


def _given_tokenizers(options, kind):
    """The tokenizer of each side from --vocabulary-from; None without."""
    path = options.vocabulary_from
    if path is None:
        return None
    number = 2 if kind == "pairs" else 1
    if os.path.isdir(path):
        tokenizers = data.Corpus(path).tokenizers()
    elif addresses.is_address(path) or pretrained.find(path).suffix == ".keras":
        task = load_task(path)
        names = ("source_tokenizer", "target_tokenizer") if number == 2 else ("tokenizer",)
        tokenizers = [getattr(task, name, None) for name in names]
    else:
        from ..data.prepared.preparation import read_tokenizer

        tokenizers = [read_tokenizer(path)] * number
    if len(tokenizers) != number or None in tokenizers:
        raise ValueError(
            f"{path} holds no vocabulary for {kind}. Take it from a corpus of {kind}, or from a "
            f"{'translator' if kind == 'pairs' else 'text generator'}."
        )
    return tokenizers
