r"""Translate with a saved model: one line of input, one line of output.

  keras-transformer translate dates "April 22, 2019"
  keras-transformer translate runs/dates/model.keras < dates.txt > iso.txt
  keras-transformer translate runs/en-de/model.keras --beams 4 --n-best 3 --scores < test.en
  keras-transformer translate runs/en-de/model.keras "A dog runs." --attention dog.png
  keras-transformer translate runs/many/model.keras --to fr "A dog runs."
  keras-transformer translate runs/1/model.keras "A dog runs." --ensemble runs/2/model.keras

Without TEXT it reads the standard input, or at a terminal asks for one sentence after another.
Lines that wait are translated together, and each translation is written at once, so that another
program may send a line and wait for its answer. An empty line stays an empty line; a newline within
a translation is written as \n.

--scores writes SCORE TAB TRANSLATION; --n-best K writes K lines per input line, best first, as
NUMBER TAB TRANSLATION; both together write NUMBER TAB SCORE TAB TRANSLATION. NUMBER counts the
input lines from 1. SCORE is the log-probability in nats divided by the length penalty; an asterisk
after it marks a translation that was cut off at the length limit. The number of those goes to the
standard error.

--attention draws the cross-attention weights of every layer and head while TEXT is translated, one
row per target token; --translation draws those of another translation than the model's own.
"""

import argparse
import pathlib
import sys
from typing import Any

from ..atomic import atomic_write
from ..data.lines import one_line
from ..data.placeholders import KINDS
from ..data.sentences import WHEN_TO_SPLIT
from .files import TRANSLATOR, add_engine, check_outputs, load_task
from .lines import add_model_and_text, answer_lines

SEARCH = (  # options of `add_search_options`
    "to",
    "beams",
    "length_penalty",
    "max_length_ratio",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "suppress",
    "sentences",
    "placeholders",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add_model_and_text(parser, f"translation model: {TRANSLATOR}", "text to translate")
    add_search_options(parser)
    add = parser.add_argument
    n_best = "number of translations per line, from 1 to the beam width, in numbered lines"
    add("--n-best", type=int, metavar="K", help=f"{n_best} (default: one, not numbered)")
    add("--scores", action="store_true", help="write the score of each translation before it")
    add("--attention", metavar="PICTURE", help="file to draw the attention of one TEXT in")
    drawn = "translation that --attention draws (default: the model's)"
    add("--translation", metavar="TEXT", help=drawn)


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Adds those of the search, which `evaluate` shares."""
    add = parser.add_argument
    add("--to", metavar="LANGUAGE", help="target language, of a model with language tags")
    others = "models of the same vocabulary that decode together with MODEL: the mean of all"
    add("--ensemble", nargs="+", default=[], metavar="MODEL", help=f"{others} probabilities")
    saved = "(default: as saved in the model)"
    add("--beams", type=int, metavar="K", help=f"beam width; 1: greedy decoding {saved}")
    penalty = "exponent of the length penalty ((5 + length) / 6)^A; 0: none"
    add("--length-penalty", type=float, metavar="A", help=f"{penalty} {saved}")
    ratio = "maximum number of tokens of a translation per source token, plus 16"
    add("--max-length-ratio", type=float, metavar="R", help=f"{ratio} {saved}")
    add_logits_options(parser, saved)
    split = "when texts are split into sentences; auto: if longer than the training data"
    add("--sentences", choices=WHEN_TO_SPLIT, default="auto", help=f"{split} (default: auto)")
    kinds = f"what is not translated: {', '.join(KINDS)}, or regular expressions; no KIND: none"
    add("--placeholders", nargs="*", metavar="KIND", help=f"{kinds} {saved}")
    add_engine(parser)


def add_logits_options(parser: Any, default: str) -> None:
    """Adds those against loops and unwanted words, which `predict` shares; None: not given."""
    add = parser.add_argument
    ngrams = "size of the n-grams of tokens that no answer repeats; 0: none"
    add("--no-repeat-ngram-size", type=int, metavar="N", help=f"{ngrams} {default}")
    penalty = "penalty of tokens that an answer has already; 1: none"
    add("--repetition-penalty", type=float, metavar="P", help=f"{penalty} {default}")
    suppress = "texts that are never written"
    add("--suppress", nargs="+", metavar="TEXT", help=f"{suppress} {default}")


def search_of(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the search, for `Translator.translate`."""
    return {name: getattr(options, name) for name in SEARCH}


def _check_attention(options):
    """Refuses options that exclude each other, and a picture that cannot be written."""
    if options.attention is None:
        if options.translation is not None:
            options.usage_error("--translation needs --attention.")
        return

    if options.engine != "keras":
        options.usage_error("--attention shows Keras's translation; leave out --engine.")
    from matplotlib.backend_bases import FigureCanvasBase

    if len(options.text) != 1:
        options.usage_error(f"--attention draws one TEXT; received {len(options.text)}.")
    if options.scores or options.n_best is not None:
        options.usage_error("--attention shows one translation; leave out --scores and --n-best.")
    check_outputs(options, ("attention",))
    formats = FigureCanvasBase.get_supported_filetypes()
    if pathlib.Path(options.attention).suffix[1:].lower() not in formats:
        options.usage_error(
            f"--attention must end in one of {', '.join(formats)}; received {options.attention}."
        )


def run(options: argparse.Namespace) -> None:
    """Prints translations, or one and its picture."""
    _check_attention(options)
    translator = load_task(options.model, "Translator", options.engine, options.ensemble)
    if options.attention is not None:
        print(one_line(_draw_attention(translator, options)))
        return

    cut_off = 0

    def answer(texts, first):
        nonlocal cut_off
        found = translator.translate(
            texts,
            n_best=options.n_best,
            return_scores=options.scores,
            return_finished=True,
            **search_of(options),
        )
        if options.n_best is None:
            cut_off += sum(not each.finished for each in found)
            return [_columns(each, options.scores) for each in found]
        cut_off += sum(not each.finished for hypotheses in found for each in hypotheses)
        return [
            f"{number}\t{_columns(each, options.scores)}"
            for number, hypotheses in enumerate(found, first + 1)
            for each in hypotheses
        ]

    answer_lines(translator, options.text, answer)
    if cut_off:
        limit = "translations cut off at the length limit (--max-length-ratio)"
        print(f"{cut_off} {limit}", file=sys.stderr)


def _columns(found, scores):
    """A `Hypothesis` as TRANSLATION, or SCORE TAB TRANSLATION."""
    if not scores:
        return found.text
    mark = "" if found.finished else "*"
    return f"{found.score:.4f}{mark}\t{found.text}"


def _draw_attention(translator, options):
    """Writes the picture; returns the translation that it shows."""
    from ..plots import BEING_WRITTEN, plot_attention

    (text,), translation = options.text, options.translation
    if translation is None:
        (translation,) = translator.translate([text], **search_of(options))
    weights, source, target = translator.attention(text, translation, to=options.to)
    layers = {f"layer {number}": layer for number, layer in enumerate(weights, start=1)}
    figure = plot_attention(layers, source, target, "Cross-attention", BEING_WRITTEN)
    with atomic_write(options.attention) as unfinished:
        figure.savefig(unfinished, dpi=150)
    return translation
