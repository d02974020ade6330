"""Translate with a saved model: line n in, line n out.

    python scripts/translate.py runs/dates/model.keras "April 22, 2019"
    python scripts/translate.py runs/dates/model.keras < dates.txt > iso.txt

Lines that are waiting are translated together, and each translation is written at once, so that
another program may send a line and wait for its answer. An empty line stays an empty line.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend, whichever one trained the model.
"""

import argparse
import os
import queue
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices


def main():
    args = parse_arguments()
    translator = load(args.model)
    sys.stdout.reconfigure(encoding="utf-8")
    batches = [args.text] if args.text else waiting_lines(sys.stdin.buffer, translator.batch_size)
    for batch in batches:
        for translation in translator.translate(batch):
            print(translation)
        sys.stdout.flush()


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL", help="a .keras file from train_translation.py")
    parser.add_argument("text", nargs="*", metavar="TEXT", help="what to translate; none: stdin")
    return parser.parse_args()


def load(path):
    if not os.path.isfile(path):
        sys.exit(f"There is no model at {path}; train one with scripts/train_translation.py.")

    import keras

    import keras_transformer

    try:
        model = keras.saving.load_model(path, compile=False)
    except ValueError as error:
        sys.exit(f"{path} is not a model that Keras can load: {str(error).splitlines()[0]}")
    if not isinstance(model, keras_transformer.Translator):
        sys.exit(
            f"{path} holds a {type(model).__name__}, not a Translator; "
            "expected a file from train_translation.py."
        )
    return model


def waiting_lines(stream, at_most):
    """Lists of 1 to `at_most` lines: waits for one line, takes what else has come by then."""
    lines = queue.Queue(maxsize=10_000)

    def read():
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    number = 0
    while (line := lines.get()) is not None:
        batch = []
        while line is not None:
            number += 1
            batch.append(as_text(line, number))
            if len(batch) == at_most or lines.empty():
                break
            line = lines.get()
        yield batch
        if line is None:
            return


def as_text(line, number):
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        sys.exit(f"Line {number} of the input is not UTF-8 (byte {error.start + 1}); convert it.")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
