"""What the scripts that answer share: a saved model, lines in, lines out."""

import os
import queue
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's start-up notices


def load(path, kind=None):
    """The task saved at a path.

    Args:
        path: str, a .keras file.
        kind: str, the task it must be, such as "Translator"; None: any.
    """
    if not os.path.isfile(path):
        sys.exit(f"There is no model at {path}; train one with scripts/{_script(kind)}.")

    import keras

    from keras_transformer.tasks import Task

    try:
        model = keras.saving.load_model(path, compile=False)
    except ValueError as error:
        sys.exit(f"{path} is not a model that Keras can load: {str(error).splitlines()[0]}")
    if not isinstance(model, Task) or kind not in (None, type(model).__name__):
        article = "an" if type(model).__name__[0] in "AEIOU" else "a"
        sys.exit(
            f"{path} holds {article} {type(model).__name__}, not a {kind or 'task'}; "
            f"expected a file from {_script(kind)}."
        )
    return model


def _script(kind):
    scripts = dict(
        Translator="train_translation.py",
        Tagger="train_tagger.py",
        Classifier="train_classifier.py",
        TextGenerator="train_language_model.py",
        MaskFiller="pretrain_words.py",
    )
    return scripts.get(kind, "train_*.py")


def batches_of(texts, at_most):
    """Lists of lines: the texts given, or what is asked for at a terminal, or waits on stdin."""
    if texts:
        return [texts]
    return asked_for() if sys.stdin.isatty() else waiting_lines(sys.stdin.buffer, at_most)


def asked_for():
    """One line at a time from a person; the prompt goes to stderr, the translation to stdout."""
    import readline  # noqa: F401  input() then edits and remembers lines

    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        try:
            yield [input()]
        except EOFError:
            print(file=sys.stderr)
            return


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


def run(main):
    """`main`, ended quietly by a reader that has seen enough, such as head, or by Control-C."""
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
