"""Translate with a saved model: line n in, line n out.

    python scripts/translate.py runs/dates/model.keras "April 22, 2019"
    python scripts/translate.py runs/dates/model.keras < dates.txt > iso.txt
    python scripts/translate.py runs/en-de/model.keras --beams 4 --n-best 3 --scores < test.en
    python scripts/translate.py runs/en-de/model.keras "A dog runs." --attention dog.png

Without text and with a terminal it asks for sentences one by one. Lines that are waiting are
translated together, and each translation is written at once, so that another program may send a
line and wait for its answer. An empty line stays an empty line.

--scores writes SCORE TAB TRANSLATION, --n-best K writes K lines for each, NUMBER TAB TRANSLATION,
and both NUMBER TAB SCORE TAB TRANSLATION, best first; NUMBER counts the input lines from 1. A score
is the log-probability in nats over the length penalty; one that was cut off at the length limit
is marked by a * behind it.

--attention PICTURE draws where each layer and head looks in the one TEXT while it writes the
translation, its own or the one given with --translation: a row for each token written.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend, whichever one trained the model.
"""

import argparse
import sys

import line_by_line


def main():
    args = parse_arguments()
    translator = line_by_line.load(args.model, "Translator")
    sys.stdout.reconfigure(encoding="utf-8")
    if args.attention:
        print(draw_attention(translator, args))
        return
    number = 0
    for batch in line_by_line.batches_of(args.text, translator.batch_size):
        for hypotheses in translate(translator, batch, args):
            number += 1
            for each in hypotheses:
                print(*columns(each, number, args), sep="\t")
        sys.stdout.flush()


def translate(translator, texts, args):
    """For each text a list of what is to be written, strings or hypotheses."""
    search = dict(beams=args.beams, length_penalty=args.length_penalty, n_best=args.n_best)
    try:
        found = translator.translate(texts, **search, return_scores=args.scores)
    except ValueError as error:
        sys.exit(f"{error}")
    return [[each] for each in found] if args.n_best is None else found


def draw_attention(translator, args):
    """Writes the picture; returns the translation it shows."""
    from keras_transformer import plots
    from keras_transformer.writing import written_beside

    (text,) = args.text
    try:
        said = args.translation
        if said is None:
            search = dict(beams=args.beams, length_penalty=args.length_penalty)
            (said,) = translator.translate([text], **search)
        weights, source_tokens, target_tokens = translator.attention(text, said)
        layers = {f"layer {number}": layer for number, layer in enumerate(weights, start=1)}
        figure = plots.plot_attention(layers, source_tokens, target_tokens, "Cross-attention")
        with written_beside(args.attention) as beside:
            figure.savefig(beside, dpi=150)
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")
    return said


def columns(hypothesis, number, args):
    counted = [] if args.n_best is None else [number]
    if not args.scores:
        return [*counted, hypothesis]
    mark = "" if hypothesis.finished else "*"
    return [*counted, f"{hypothesis.score:.4f}{mark}", hypothesis.text]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a .keras file from train_translation.py")
    add("text", nargs="*", metavar="TEXT", help="what to translate; none: stdin")
    add("--beams", type=int, metavar="K", help="width of the beam search; 1: greedy (as saved)")
    penalty = "favours long translations: score = log-probability / ((5 + length) / 6)^A (as saved)"
    add("--length-penalty", type=float, metavar="A", help=penalty)
    add("--n-best", type=int, metavar="K", help="so many translations of each line")
    add("--scores", action="store_true", help="write the score of each translation before it")
    add("--attention", metavar="PICTURE", help="draw the attention weights of the one TEXT")
    add("--translation", metavar="TEXT", help="with --attention: of this translation of it")
    args = parser.parse_intermixed_args()  # MODEL --beams 4 TEXT, too
    if args.attention and len(args.text) != 1:
        parser.error(f"--attention draws one TEXT; received {len(args.text)}.")
    if args.translation is not None and not args.attention:
        parser.error("--translation goes with --attention.")
    return args


if __name__ == "__main__":
    line_by_line.run(main)
