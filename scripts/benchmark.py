"""Compare this package with other libraries in one process, so that load slows all of them."""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices

from benchmarks import (
    compilation,
    epochs,
    exports,
    generation,
    lengths,
    memory,
    profile,
    reading,
    sentences,
    starting,
    training,
)
from keras_transformer.atomic import check_files
from keras_transformer.cli.parser import option_names
from keras_transformer.cli.streams import standard_streams

HELP = """\
Measure this package, and compare it with other libraries.

  KERAS_BACKEND=jax python scripts/benchmark.py train
  python scripts/benchmark.py train --preset base --dtype mixed_bfloat16 --json train.json
  python scripts/benchmark.py epoch --source train.en.gz --target train.de.gz
  python scripts/benchmark.py generate --separate 3
  python scripts/benchmark.py translate zh-en --texts dev.zh --beams 1 5
  python scripts/benchmark.py export runs/en-de/model.keras --texts val.en
  python scripts/benchmark.py profile
  KERAS_BACKEND=jax python scripts/benchmark.py compile --layers 1 3 6
  python scripts/benchmark.py memory --rows 64 256
  python scripts/benchmark.py memory --rows 16 --updates 1000
  python scripts/benchmark.py start
  python scripts/benchmark.py first --backends jax torch
  python scripts/benchmark.py cost
  python scripts/benchmark.py read corpora/en-de
  python scripts/benchmark.py train --contenders ours keras-attention --rounds 50

Contenders take turns in one process, so that load on the machine slows all of them. Each command
prints a Markdown table with the hardware, the versions and the command line.
"python scripts/benchmark.py COMMAND --help" explains what is compared.
"""


@standard_streams()
def main():
    formatter = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(description=HELP, **formatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    of_training = training, profile, compilation, epochs, memory, starting, reading
    for command in (*of_training, generation, sentences, lengths, exports):
        command.add_command(commands, formatter)
    args = parser.parse_args()
    values = {f"--{name}": each for name, each in vars(args).items() if isinstance(each, str)}
    try:
        option_names(sys.argv[1:])
        check_files({"--json": values.pop("--json", None)}, values)
    except (OSError, ValueError) as error:
        sys.exit(f"{error}")
    args.run(args)


if __name__ == "__main__":
    main()
