"""Ask any saved model, whichever task it was trained for: line in, line out.

    python scripts/predict.py runs/tags/model.keras "I saw a saw"    I/PRON saw/VERB a/DET saw/NOUN
    python scripts/predict.py runs/labels/model.keras < reviews.txt  negative TAB 0.9812
    python scripts/predict.py runs/language/model.keras "ROMEO:" --max-tokens 200
    python scripts/predict.py runs/words/model.keras "The [MASK] barks."  dog 0.41, cat 0.08, ...
    python scripts/predict.py runs/dates/model.keras "April 22, 2019"

Without text and with a terminal it asks for lines one by one; lines that are waiting are answered
together. A tagger splits its lines at blanks and marks, with --words at blanks only. In what a
language model writes, a newline reads \\n. For beams, scores and attention of translations see
translate.py. KERAS_BACKEND=tensorflow, jax or torch chooses the backend, whichever trained it.
"""

import argparse
import sys

import line_by_line


def main():
    args = parse_arguments()
    task = line_by_line.load(args.model)
    answer = answers(type(task).__name__, task, args)
    sys.stdout.reconfigure(encoding="utf-8")
    for batch in line_by_line.batches_of(args.text, task.batch_size):
        try:
            for line in answer(batch):
                print(line)
        except ValueError as error:
            sys.exit(f"{error}")
        sys.stdout.flush()


def answers(kind, task, args):
    """The function from texts to lines of a kind of task."""

    def tag(texts):
        sentences = [text.split() for text in texts] if args.words else texts
        return [" ".join(f"{w}/{t}" for w, t in pairs) for pairs in task.tag(sentences)]

    def classify(texts):
        return [f"{each.label}\t{each.probability:.4f}" for each in task.classify(texts)]

    def generate(texts):
        said = task.generate(
            texts, args.max_tokens, args.temperature, args.top_k, args.top_p, args.seed
        )
        return [text.replace("\n", "\\n") for text in said]

    def fill(texts):
        found = task.fill(texts)
        return [", ".join(f"{e.label} {e.probability:.2f}" for e in words) for words in found]

    functions = dict(Tagger=tag, Classifier=classify, TextGenerator=generate, MaskFiller=fill)
    return functions.get(kind) or task.translate


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a .keras file from one of the training scripts")
    add("text", nargs="*", metavar="TEXT", help="what to ask; none: stdin")
    add("--words", action="store_true", help="tagger: the words are what blanks separate")
    add = parser.add_argument_group("language model").add_argument
    add("--max-tokens", type=int, default=100, metavar="N", help="to write after each prompt (100)")
    add("--temperature", type=float, default=1.0, metavar="T", help="0: the most probable (1)")
    add("--top-k", type=int, metavar="K", help="draw from the K most probable tokens")
    add("--top-p", type=float, default=1.0, metavar="P", help="draw from the fewest that reach P")
    add("--seed", type=int, default=0, help="of what is drawn (0)")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    line_by_line.run(main)
