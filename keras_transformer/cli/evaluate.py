r"""Score a translation model on a test set: BLEU, chrF, perplexity, speed, worst sentences.

  keras-transformer evaluate runs/en-de/model.keras --source test.en --reference test.de
  keras-transformer evaluate runs/en-de/model.keras --source test.en.gz --reference test.de.gz \
      --beams 5 --json scores.json --translations test.out --worst 10

BLEU and chrF are those of sacreBLEU on the same files, blank lines included, with the signature
that makes them comparable; use --tokenize zh for Chinese. Papers that report "tokenized,
lower-cased BLEU" score text that was tokenized and lower-cased beforehand: train on such text, pass
such files, and use --tokenize none. The length ratio is that of the words which BLEU counts. In a
loop, some 4-gram of words occurs at least twice more often than any in the source. Perplexity is
exp(nats / tokens) of the references, END tokens included, over the lines with text on both sides; a
run of unknown characters, whose share is printed, is one token.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from .. import data, evaluation
from ..atomic import write_text
from ..checks import TextError
from ..data.lines import one_line
from ..data.records import collect_complete
from .files import TRANSLATOR, check_outputs, load_task
from .translate import add_search_options, search_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("model", metavar="MODEL", help=f"translation model: {TRANSLATOR}")
    lines = "sentences, one per line, plain or compressed"
    add("--source", required=True, metavar="FILE", help=lines)
    add("--reference", required=True, metavar="FILE", help="their translations, line by line")
    add_search_options(parser)
    tokenize = "sacreBLEU tokenizer, such as 13a, zh or none (default: 13a)"
    add("--tokenize", default="13a", metavar="NAME", help=tokenize)
    add("--lowercase", action="store_true", help="case-insensitive BLEU and chrF")
    worst = "number of sentences with the lowest chrF to show (default: 5)"
    add("--worst", type=int, default=5, metavar="N", help=worst)
    add("--json", metavar="FILE", help="JSON file for the scores")
    add("--translations", metavar="FILE", help="text file for the translations, one per line")


def run(options: argparse.Namespace) -> None:
    """Prints and writes scores; what could go wrong at the end is checked before the work."""
    if options.worst < 0:
        options.usage_error(f"--worst must be at least 0; received {options.worst}.")
    check_outputs(options, ("json", "translations"), ("source", "reference"))
    try:
        evaluation.check_bleu_tokenizer(options.tokenize)
    except RuntimeError as error:
        sys.exit(f"{error}")
    names = f"{options.source} and {options.reference}"
    pairs = data.iterate_files(options.source, options.reference)
    sources, references = collect_complete(data.Examples, pairs, names, drop=False)
    translator = load_task(options.model, "Translator", options.engine, options.ensemble)
    try:
        texts = translator.tagged(sources, options.to)
        complete = [n for n, pair in enumerate(zip(sources, references, strict=True)) if all(pair)]
        numbers: Sequence[int] = complete  # of the lines, from 0
        perplexity = _perplexity_of(
            translator, [texts[n] for n in complete], [references[n] for n in complete]
        )
        numbers = range(len(sources))
        start = time.perf_counter()
        found = translator.translate(sources, return_finished=True, **search_of(options))
        translations = [one_line(each.text) for each in found]
        seconds = time.perf_counter() - start
    except TextError as error:
        path = options.reference if error.name == "Translation" else options.source
        sys.exit(f"{path}, line {numbers[error.number] + 1}: {error.problem}")
    bleu = evaluation.bleu(translations, references, options.tokenize, options.lowercase)
    chrf = evaluation.chrf(translations, references, options.lowercase)
    print(f"BLEU {bleu}")
    print(f"chrF {chrf}")
    source = translator.source_tokenizer.unknown_share(translator.normalized(sources))
    reference = translator.target_tokenizer.unknown_share(translator.normalized(references))
    print(f"Perplexity of the references: {perplexity:.3f} per token")
    print(f"Unknown characters: {source:.2%} of the sources, {reference:.2%} of the references")
    copies = evaluation.copy_rate(translations, sources)
    loops = evaluation.loop_rate(translations, sources)
    cut_off = sum(not each.finished for each in found)
    print(f"Length ratio to the references: {bleu.length_ratio:.3f}")
    print(f"Copies of the source: {copies:.2%}; loops: {loops:.2%}")
    print(f"Cut off at the length limit: {cut_off} of {len(found)}")
    print(f"{len(sources)} sentences in {seconds:.1f} s, compilation included")
    _print_worst(complete, sources, references, translations, options)
    if options.translations is not None:
        write_text(options.translations, "".join(f"{text}\n" for text in translations))
    if options.json is not None:
        scores = {
            "bleu": bleu.value,
            "bleu_signature": bleu.signature,
            "chrf": chrf.value,
            "chrf_signature": chrf.signature,
            "perplexity": perplexity,
            "unknown_share": {"source": source, "reference": reference},
            "length_ratio": bleu.length_ratio,
            "copy_rate": copies,
            "loop_rate": loops,
            "cut_off": cut_off,
            "sentences": len(sources),
            "seconds": seconds,
            "sentences_per_second": len(sources) / seconds,
        }
        text = json.dumps(evaluation.as_json(scores), indent=2, ensure_ascii=False, allow_nan=False)
        write_text(options.json, f"{text}\n")


def _perplexity_of(translator, sources, references):
    """That of the references, given their sources."""
    nats = -sum(translator.score(sources, references, length_penalty=0.0))
    encoded = translator.target_tokenizer.encode(translator.normalized(references))
    tokens = sum(len(ids) + 1 for ids in encoded)
    return evaluation.perplexity(nats, tokens)


def _print_worst(complete, sources, references, translations, options):
    """Of the sentences without a blank side, those with the lowest chrF."""
    scores = evaluation.sentence_chrf(translations, references, options.lowercase)
    worst = sorted(complete, key=scores.__getitem__)[: options.worst]
    for number in worst:
        print(f"\nSentence {number + 1}, chrF {scores[number]:.1f}")
        print(f"  source      {sources[number]}")
        print(f"  reference   {references[number]}")
        print(f"  translation {translations[number]}")
