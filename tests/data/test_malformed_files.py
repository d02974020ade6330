"""Files of any bytes: an error of one sentence that names the problem, or a count of drops."""

import gzip
import json
import pathlib
import random
import sys
import traceback

import pytest

from keras_transformer import data
from keras_transformer.checks import TextError
from keras_transformer.tokenizers import train_tokenizer

ROOT = pathlib.Path(__file__).parents[2]
GROUPS, EACH = 10, 100
WORDS = "ein Hund läuft schnell über 草地 喝水 🐕 naïve \u0646\u0635 e\u0301 ½ 12 .".split()
NASTY = ["\0", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\ufeff", "\u2581", "\u2585"]
NASTY += ["\u200b", "\ud800", "\uffff", "<s>", "</s>", "<unk>", "\t", " ", "", "\U0010ffff"]


class Malformed:
    """Sentence pairs in files with up to three defects, a function of the seed."""

    def __init__(self, seed, folder):
        self.rng, self.folder = random.Random(seed), folder
        pairs = [(self.sentence(), self.sentence()) for _ in range(self.rng.choice([1, 3, 60, 60]))]
        if self.rng.random() < 0.6:
            for _ in range(self.rng.randint(1, 3)):
                self.spoil(pairs)
        kind = self.rng.choice(["files", "tsv", "jsonl"])
        if kind == "files":
            source, target = ([pair[side] for pair in pairs] for side in (0, 1))
            if self.rng.random() < 0.1:
                self.rng.choice([source, target]).append("one more")
            paths = self.write("a.en", source), self.write("a.de", target)
            self.read = lambda: data.read_files(*paths)
            self.options = ["--source", paths[0], "--target", paths[1]]
        elif kind == "tsv":
            tab = self.rng.choice(["\t"] * 8 + [" ", "\t\t"])
            path = self.write("a.tsv", [tab.join(pair) for pair in pairs])
            self.read = lambda: data.read_pairs(path)
            self.options = ["--pairs", path]
        else:
            path = self.write("a.jsonl", [self.object(*pair) for pair in pairs])
            self.read = lambda: data.read_pairs(path)
            self.options = ["--pairs", path]

    def sentence(self):
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, 9)))

    def spoil(self, pairs):
        """Another text in place of one, or another number of pairs."""
        if not pairs:
            return
        n = self.rng.randrange(len(pairs))
        source, target = pairs[n]
        nasty = self.rng.choice(NASTY)
        change = self.rng.randrange(6)
        if change == 0:
            pairs[n] = (nasty * self.rng.randint(1, 3), target)
        elif change == 1:
            pairs[n] = (source, target.replace(" ", nasty))
        elif change == 2:
            pairs[n] = ("long " * self.rng.choice([300, 300_000]), target)
        elif change == 3:
            pairs[n] = (source, "word" * self.rng.choice([300, 30_000]))
        elif change == 4:
            del pairs[n:]
        else:
            pairs[:] = [(" ", nasty)] * len(pairs)

    def object(self, source, target):
        fields = {"source": source, "target": target}
        if self.rng.random() < 0.01:
            wrong = [None, 7, [source], {"source": source}, {}, "text"]
            fields = self.rng.choice([*wrong, {**fields, "target": self.rng.choice(wrong)}])
        line = json.dumps(fields, ensure_ascii=self.rng.random() < 0.5)
        return line if self.rng.random() < 0.998 else "[" * 100_000 + line[:9]

    def write(self, name, lines):
        """The lines as bytes, and perhaps those bytes damaged."""
        text = self.rng.choice(["\n"] * 14 + ["\r\n"] * 5 + ["\r"]).join(lines)
        encoding = self.rng.choice(
            ["utf-8"] * 20 + ["utf-8-sig"] * 3 + ["utf-16", "latin-1", "cp1252"]
        )
        lone = "surrogatepass" if encoding.startswith("utf") else "replace"
        data = self.damaged(text.encode(encoding, lone))
        self.num_pairs = data.removesuffix(b"\n").count(b"\n") + 1
        if self.rng.random() < 0.3:
            data = gzip.compress(data)
            data = self.damaged(data)
        path = self.folder / (name + self.rng.choice(["", ".gz"]))
        if self.rng.random() < 0.98:
            path.write_bytes(data)
        return str(path)

    def damaged(self, data):
        damage = self.rng.randrange(50)
        if damage == 0:
            return data[: self.rng.randrange(len(data) + 1)]
        if damage == 1:
            at = self.rng.randrange(len(data) + 1)
            return data[:at] + self.rng.randbytes(4) + data[at:]
        return self.rng.randbytes(300) if damage == 2 else data


def prepare(corpus, model_type):
    """Reads files as a training script does before it builds a model."""
    examples = data.clean(corpus.read(), max_characters=1000)
    train, valid = data.train_valid_split(examples)
    tokenizer = train_tokenizer(train.source + train.target, model_type=model_type)
    batches = []
    for split in (train, valid):
        source, target = (tokenizer.encode(side) for side in split)
        batches.append(data.TranslationBatches(source, target, tokens_per_batch=512))
    return train, valid, tokenizer, *batches


@pytest.mark.parametrize(
    "group", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, GROUPS))]
)
def test_malformed_files_end_in_one_sentence_or_in_a_count(group, tmp_path, caplog):
    for number in range(EACH * group, EACH * (group + 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        corpus = Malformed(number, folder)
        caplog.clear()
        try:
            prepared = prepare(corpus, ("char", "bpe")[number % 10 == 0])
        except Exception as error:
            check_error(error, number)
        else:
            check_prepared(*prepared, corpus, caplog.messages)


def check_error(error, number):
    assert type(error) in (ValueError, FileNotFoundError, TextError), f"corpus {number}: {error!r}"
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    assert str(ROOT) in raised_in, f"corpus {number}: {error}, raised in {raised_in}"
    check_message(str(error), number)


def check_message(message, number):
    assert message.endswith("."), (number, message)
    assert "\n" not in message, (number, message)
    assert 30 < len(message) < 500, (number, message)


def check_prepared(train, valid, tokenizer, train_batches, valid_batches, corpus, messages):
    kept = len(train.source) + len(valid.source)
    assert kept == corpus.num_pairs or any("dropped" in message for message in messages)
    assert all(text for split in (train, valid) for side in split for text in side)
    assert train_batches.num_examples == len(train.source)
    for batches in (train_batches, valid_batches):
        inputs, labels = batches[0]
        for ids in (*inputs.values(), labels):
            assert ids.min() >= 0
            assert ids.max() < tokenizer.vocabulary_size()


@pytest.mark.slow
def test_a_script_ends_with_the_sentence_and_writes_nothing(tmp_path, inside):
    number_of_errors = 0
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        corpus = Malformed(number, folder)
        try:
            prepare(corpus, "char")
        except (ValueError, FileNotFoundError):
            run = ["--output", folder / "run", "--vocabulary", "char"]
            ended = inside([sys.executable, "train_translation.py", *corpus.options, *run])
            assert ended.returncode == 1
            check_message(ended.stderr, number)
            assert not (folder / "run").exists()
            number_of_errors += 1
    assert number_of_errors > 5
