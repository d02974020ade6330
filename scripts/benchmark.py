"""Measure this package beside its peers, in one process, so that a busy machine slows all alike."""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import epochs, generation, lengths, training

HELP = """\
Measure this package beside its peers, in one process, so that a busy machine slows all alike.

  KERAS_BACKEND=jax python scripts/benchmark.py train
  python scripts/benchmark.py train --preset base --dtype mixed_bfloat16 --json train.json
  python scripts/benchmark.py epoch --source train.en.gz --target train.de.gz
  python scripts/benchmark.py train --contenders ours keras-attention --rounds 50

Each command prints a Markdown table with the hardware, the versions and the command line.
"python scripts/benchmark.py COMMAND --help" says what is compared, and how.
"""


def main():
    formatter = dict(formatter_class=argparse.RawDescriptionHelpFormatter)
    parser = argparse.ArgumentParser(description=HELP, **formatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    training.add_command(commands, formatter)
    epochs.add_command(commands, formatter)
    generation.add_command(commands, formatter)
    lengths.add_command(commands, formatter)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
