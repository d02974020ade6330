r"""Ask a saved model of any task: one line of input, one line of output.

  keras-transformer predict runs/tags/model.keras "I saw a saw"
      I/PRON saw/VERB a/DET saw/NOUN
  keras-transformer predict runs/labels/model.keras < reviews.txt
      negative TAB 0.9812
  keras-transformer predict runs/language/model.keras "ROMEO:" --max-tokens 200
  keras-transformer predict runs/words/model.keras "The [MASK] barks."
      dog 0.41, cat 0.08, ...
  keras-transformer predict runs/dates/model.keras "April 22, 2019"

Without TEXT it reads the standard input, or at a terminal asks for one line after another; lines
that wait are answered together. A tagger splits text into words and punctuation, with --words at
spaces and tabs only. A newline in an answer is written as \n. For a translation model the command
translate has more options.
"""

import argparse
import re

from ..generation.configuration import OF_LOGITS
from .files import MODEL, add_engine, check_used, load_task
from .lines import add_model_and_text, answer_lines
from .translate import add_logits_options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add_model_and_text(parser, f"model of any task: {MODEL}", "text to answer")
    words = "tagger: splitting at spaces and tabs only (default: words and punctuation)"
    parser.add_argument("--words", action="store_true", help=words)
    add_engine(parser)
    group = parser.add_argument_group("language model")
    add = group.add_argument
    max_tokens = "maximum new tokens per prompt (default: 100)"
    add("--max-tokens", type=int, default=100, metavar="N", help=max_tokens)
    temperature = "sampling temperature; 0: greedy decoding (default: 1)"
    add("--temperature", type=float, default=1.0, metavar="T", help=temperature)
    top_k = "number of most probable tokens to sample from (default: all)"
    add("--top-k", type=int, metavar="K", help=top_k)
    top_p = "nucleus sampling threshold (default: 1)"
    add("--top-p", type=float, default=1.0, metavar="P", help=top_p)
    add("--seed", type=int, default=0, metavar="N", help="random seed of sampling (default: 0)")
    add_logits_options(group, "(default: none)")


def run(options: argparse.Namespace) -> None:
    """Prints the answers of a task."""
    task = load_task(options.model, engine=options.engine)
    kind = type(task).__name__
    others = (names for other, names in OPTIONS.items() if other != kind)
    check_used(options, {k: v for names in others for k, v in names.items()})
    answer_lines(task, options.text, lambda texts, first: _answers(task, texts, options, first))


def _answers(task, texts, options, first):
    """The lines to print, one per text."""
    match type(task).__name__:
        case "Translator":
            return task.translate(texts)
        case "Tagger":  # WORD/TAG WORD/TAG ...
            if options.words:
                texts = [re.findall("[^ \t]+", text) for text in texts]
            return [" ".join(f"{word}/{tag}" for word, tag in pairs) for pairs in task.tag(texts)]
        case "Classifier":  # LABEL TAB PROBABILITY
            return [f"{each.label}\t{each.probability:.4f}" for each in task.classify(texts)]
        case "TextGenerator":
            sampling = {name: getattr(options, name) for name in OPTIONS["TextGenerator"]}
            sampling = {name: value for name, value in sampling.items() if value is not None}
            return task.generate(texts, **sampling, first=first)
        case "MaskFiller":  # WORD PROBABILITY, WORD PROBABILITY, ...
            best = ([f"{w.label} {w.probability:.2f}" for w in words] for words in task.fill(texts))
            return map(", ".join, best)


OPTIONS = {  # of one kind of task, each with what it needs
    "Tagger": {"words": "a tagger"},
    "TextGenerator": dict.fromkeys(
        ("max_tokens", "temperature", "top_k", "top_p", "seed", *OF_LOGITS), "a language model"
    ),
}
