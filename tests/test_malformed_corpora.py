"""Files of any bytes: one sentence that says what is wrong, or a count of what was left out."""

import gzip
import importlib
import json
import pathlib
import random
import sys
import traceback

import pytest

ROOT = pathlib.Path(__file__).parents[1]
GROUPS, EACH = 10, 100
WORDS = "ein Hund läuft schnell über 草地 喝水 🐕 naïve \u0646\u0635 e\u0301 ½ 12 .".split()
NASTY = ["\0", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\ufeff", "\u2581", "\u2585"]
NASTY += ["\u200b", "\ud800", "\uffff", "<s>", "</s>", "<unk>", "\t", " ", "", "\U0010ffff"]


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield importlib.import_module("train_translation")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


class Malformed:
    """Sentence pairs in files, and up to three things wrong with them; set by a seed."""

    def __init__(self, seed, folder):
        self.rng, self.folder = random.Random(seed), folder
        pairs = [(self.sentence(), self.sentence()) for _ in range(self.rng.choice([1, 3, 60, 60]))]
        if self.rng.random() < 0.6:
            for _ in range(self.rng.randint(1, 3)):
                self.spoil(pairs)
        kind = self.rng.choice(["files", "tsv", "jsonl"])
        if kind == "files":
            source, target = (list(side) for side in zip(*pairs)) if pairs else ([], [])
            if self.rng.random() < 0.1:
                self.rng.choice([source, target]).append("one more")
            paths = self.write("a.en", source), self.write("a.de", target)
            self.options = ["--source", paths[0], "--target", paths[1]]
        elif kind == "tsv":
            tab = self.rng.choice(["\t"] * 8 + [" ", "\t\t"])
            lines = [tab.join(pair) for pair in pairs]
            self.options = ["--pairs", self.write("a.tsv", lines)]
        else:
            self.options = ["--pairs", self.write("a.jsonl", [self.object(*p) for p in pairs])]

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


@pytest.mark.parametrize("group", range(GROUPS))
def test_malformed_corpora_end_in_one_sentence_or_in_a_count(
    group, script, tmp_path, monkeypatch, caplog
):
    """A thousand of them in all; a run folder is there for none."""
    fitting = []

    def build_nothing(args, splits, tokenizers):
        fitting.append((splits, tokenizers, *script.in_batches(args, splits, tokenizers)))
        raise ValueError("all of it fits")

    monkeypatch.setattr(script, "put_together", build_nothing)
    for number in range(EACH * group, EACH * (group + 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        corpus = Malformed(number, folder)
        run = ["--output", str(folder / "run"), "--vocabulary", ("char", "bpe")[number % 10 == 0]]
        monkeypatch.setattr(sys, "argv", ["train_translation.py", *corpus.options, *run])
        caplog.clear()
        fitting.clear()
        with pytest.raises(SystemExit) as ended:
            script.main()
        said = str(ended.value.code)
        assert not (folder / "run").exists()
        if fitting:
            assert said == "all of it fits"
            check_what_fits(*fitting[0], corpus, caplog.messages)
        else:
            check_what_is_said(said, ended.value.__context__, number)


def check_what_is_said(said, error, number):
    assert type(error) in (ValueError, FileNotFoundError), f"corpus {number}: {error!r}"
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    assert str(ROOT) in raised_in, f"corpus {number}: {said}, raised in {raised_in}"
    assert said.endswith(".") and "\n" not in said and 30 < len(said) < 500, (number, said)


def check_what_fits(splits, tokenizers, train, valid, corpus, messages):
    kept = len(splits.train.source) + len(splits.valid.source)
    assert kept == corpus.num_pairs or any("dropped" in said for said in messages)
    assert all(text for split in splits[:2] for side in split for text in side)
    assert train.num_examples == len(splits.train.source)
    for batches in (train, valid):
        inputs, labels = batches[0]
        for ids in (*inputs.values(), labels):
            assert 0 <= ids.min() and ids.max() < tokenizers[0].vocabulary_size()
