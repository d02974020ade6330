"""Save the mean of a run's last checkpoints as a .keras file of its own.

    python scripts/average_checkpoints.py runs/en-de --last 5 --output runs/en-de/average-5.keras

The mean of weights that lie near each other makes fewer slips than any of them (Vaswani et al.
2017, section 6.1). Train with --average N, which keeps the last N checkpoints and saves their
mean as model.keras; this script takes another mean of those, without training again. Compare them
with evaluate.py, on the validation set.
"""

import argparse
import json
import pathlib
import sys

from line_by_line import load


def main():
    args = parse_arguments()

    from keras_transformer import training

    run = pathlib.Path(args.run)
    paths = training.checkpoint_paths(run / "checkpoint")
    if not args.last:
        args.last = len(paths)
    if not 1 <= args.last <= len(paths):
        sys.exit(
            f"{run} holds {len(paths)} checkpoints; received --last {args.last}. Train with "
            "--average N to keep the last N."
        )
    translator = load(run / "model.keras", "Translator")
    model = translator.transformer
    r_drop = json.loads((run / "settings.json").read_text("utf-8"))["arguments"].get("r_drop")
    if r_drop:  # then that model was trained, with the transformer in it
        model = training.RDrop(model, r_drop)
    training.average_checkpoints(model, paths[-args.last :])
    output = args.output or run / f"average-{args.last}.keras"
    translator.save(output)
    print(f"The mean of {', '.join(path.name for path in paths[-args.last :])} is in {output}.")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="the folder of a finished run of train_translation.py")
    add("--last", type=int, metavar="N", help="how many checkpoints (all that are there)")
    add("--output", metavar="FILE", help="the .keras file to write (RUN/average-N.keras)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
