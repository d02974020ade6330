"""Corpora on disk: prepared as a stream, damaged, interrupted; batches equal those of memory."""

import contextlib
import csv
import gc
import gzip
import io
import itertools
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import atomic, backend, data
from keras_transformer import cli as console
from keras_transformer.backend import distribution
from keras_transformer.data import Corpus, PreparedBatches, prepare_corpus
from keras_transformer.data.cleaning import Cleaner
from keras_transformer.data.prepared import preparation as preparation_module
from keras_transformer.data.prepared.shards import Shard, write_shard
from keras_transformer.data.prepared.workers import ShardWriters
from keras_transformer.ids import PADDING
from keras_transformer.tokenizers.byte_level import ByteLevelTokenizer, BytePairs

pytest.importorskip("array_record")

WORDS = "the a dog cat sees barks small old at and runs sleeps house tree".split()


def sentences(number, seed):
    """Sentences of 1 to 12 words, each with a word of its own."""
    generator = np.random.default_rng(seed)
    return [
        " ".join([f"x{n}", *generator.choice(WORDS, generator.integers(0, 12))])
        for n in range(number)
    ]


PAIRS = list(zip(sentences(300, 0), sentences(300, 1), strict=True))
QUICK = {"shard_size": 70, "num_processes": 1, "vocabulary_size": 120}


def texts_of(rows):
    """All sources, then all targets."""
    return list(itertools.chain.from_iterable(zip(*rows, strict=True)))


def prepared(folder, rows=PAIRS, kind="pairs", **options):
    return prepare_corpus(folder, lambda: iter(rows), kind, **(QUICK | options))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """300 pairs in five shards."""
    return prepared(tmp_path_factory.mktemp("corpora") / "pairs")


def ids_of(corpus, rows=PAIRS):
    sides = zip(*rows, strict=True)
    return [each.encode(side) for each, side in zip(corpus.tokenizers(), sides, strict=True)]


def assert_same_batches(one, other, epochs=(0, 1, 7)):
    assert one.summary() == other.summary()
    for epoch in epochs:
        one.epoch = other.epoch = epoch
        for batch, other_batch in zip(one, other, strict=True):
            columns, other_columns = (
                {**inputs, "": labels} for inputs, labels in (batch, other_batch)
            )
            assert columns.keys() == other_columns.keys()
            for name, values in columns.items():
                np.testing.assert_array_equal(values, other_columns[name])
                assert values.dtype == other_columns[name].dtype == np.int32
        assert one.num_tokens == other.num_tokens
        assert one.padding_share == other.padding_share


# The corpus


def test_a_corpus_holds_the_ids_of_every_example_in_order(corpus):
    tokenizer = kt.train_tokenizer(texts_of(PAIRS), 120)
    assert [each.proto for each in corpus.tokenizers()] == [tokenizer.proto] * 2
    assert len(corpus) == 300 and len(corpus.shard_paths) == 5
    for number, pair in enumerate(PAIRS):
        assert [side.tolist() for side in corpus[number]] == tokenizer.encode(pair)
        assert corpus.lengths[number].tolist() == [len(ids) for ids in tokenizer.encode(pair)]
    assert corpus[-1][0].tolist() == corpus[299][0].tolist()
    with pytest.raises(IndexError):
        corpus[300]


def test_the_vocabulary_of_a_corpus_has_the_reserved_pieces(tmp_path):
    corpus = prepared(tmp_path, reserve=["<term>"])
    assert [each.tokens([4]) for each in corpus.tokenizers()] == [["<term>"]] * 2
    with pytest.raises(FileExistsError, match=r"\(not the same vocabulary\)"):
        prepared(tmp_path, reserve=["<other>"])


def test_a_corpus_goes_through_pickle(corpus):
    assert pickle.loads(pickle.dumps(corpus))[123][1].tolist() == corpus[123][1].tolist()


def test_a_large_vocabulary_is_stored_in_more_bytes(tmp_path):
    ids = [[[5, 70_000], [], [2**31 - 1]], [[7], [8, 9], []]]
    write_shard(tmp_path / "shard", ids, {"dtype": "<u4"})
    shard = Shard(tmp_path / "shard")
    found = [np.frombuffer(shard.read(n), shard.dtype).tolist() for n in range(3)]
    assert found == [[5, 70_000, 7], [8, 9], [2**31 - 1]]
    np.testing.assert_array_equal(shard.lengths(), [[2, 1], [0, 2], [1, 0]])


def test_each_side_may_have_a_vocabulary_of_its_own(tmp_path):
    corpus = prepared(tmp_path, separate_vocabularies=True)
    one, other = corpus.tokenizers()
    assert one.proto != other.proto
    assert [one.encode([PAIRS[5][0]])[0], other.encode([PAIRS[5][1]])[0]] == [
        side.tolist() for side in corpus[5]
    ]


def test_grain_shuffles_a_corpus_and_continues_from_a_saved_state(corpus):
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(corpus).shuffle(seed=3).to_iter_dataset()
    iterator = iter(dataset)
    first = [next(iterator)[0].tolist() for _ in range(100)]
    state = iterator.get_state()
    rest = [pair[0].tolist() for pair in iterator]
    expected = sorted(corpus[n][0].tolist() for n in range(300))
    assert sorted(first + rest) == expected and first + rest != expected
    again = iter(dataset)
    again.set_state(state)
    assert [pair[0].tolist() for pair in again] == rest


def test_threads_that_read_at_once_get_their_own_examples(corpus):
    expected = [corpus[n][0].tolist() for n in range(300)]
    wrong, interval = [], sys.getswitchinterval()

    def read(first):
        mine = 30 * list(range(first, 300, 4))
        wrong.extend(n for n in mine if corpus[n][0].tolist() != expected[n])

    sys.setswitchinterval(1e-6)  # otherwise they would hardly ever meet
    try:
        threads = [threading.Thread(target=read, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_a_damaged_shard_is_named_in_one_sentence(tmp_path):
    corpus = prepared(tmp_path)
    path = corpus.shard_paths[2]
    content = path.read_bytes()
    corpus.close()

    def message(changed):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="damaged") as error:
            list(Corpus(tmp_path))
        return str(error.value)

    place = content.index(np.array(ids_of(corpus)[0][150], "<u2").tobytes())
    flipped = bytearray(content)
    flipped[place] ^= 4
    for changed in (bytes(flipped), content[: len(content) // 2], content[:-9], b""):
        text = message(changed)
        assert text.startswith(f"{path}: expected a complete shard, received a damaged one")
        assert "only this shard is then written" in text and "\n" not in text
    path.write_bytes(corpus.shard_paths[1].read_bytes())
    with pytest.raises(ValueError, match="shard-00002.array_record is a shard of another corpus"):
        Corpus(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"shard-00002\S*: this shard .* is missing"):
        Corpus(tmp_path)
    others = {each: each.stat().st_mtime_ns for each in corpus.shard_paths if each != path}
    assert_same_batches(PreparedBatches(prepared(tmp_path)), PreparedBatches(Corpus(tmp_path)))
    assert path.read_bytes() == content
    assert {each: each.stat().st_mtime_ns for each in others} == others


VALUES = [None, 0, -1, 2**40, 1.5, "x", "1", "../x", [], {}, ["x"], True, {"a": "b"}]
CHECKED = ["format_version", "kind", "cleaning", "examples", "vocabularies", "digest", "shards"]


def altered(folder, generator):
    """Alters one file of a corpus; returns what its content was, by path."""
    description, vocabulary = folder / "corpus.json", folder / "vocabulary.spm"
    path = vocabulary if (case := generator.integers(8)) < 3 else description
    content = path.read_bytes()
    place = int(generator.integers(len(content)))
    fields = json.loads(description.read_text())
    shards = list(fields["shards"].items())
    if case in (0, 3):
        path.write_bytes(content[:place])
    elif case == 1:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    elif case == 2:
        path.write_bytes(b"")
    else:
        if case == 4:
            fields = VALUES[generator.integers(len(VALUES))]
        elif case == 5:
            name = CHECKED[generator.integers(len(CHECKED))]
            fields[name] = VALUES[generator.integers(len(VALUES))]
        elif case == 6:
            del fields[CHECKED[generator.integers(len(CHECKED))]]
        else:  # one less, another order, one twice
            kinds = [
                shards[1:],
                shards[::-1],
                [*shards, ("shard-00009.array_record", shards[0][1])],
            ]
            fields["shards"] = dict(kinds[place % 3])
        path.write_text(json.dumps(fields))
    return path, content


def test_a_corpus_with_an_altered_file_is_refused_in_one_sentence(tmp_path):
    prepared(tmp_path)
    generator = np.random.default_rng(0)
    for number in range(300):
        path, content = altered(tmp_path, generator)
        if json_of(path.read_bytes()) == json_of(content) != "":
            continue
        with pytest.raises((ValueError, FileNotFoundError)) as error:
            Corpus(tmp_path)
        message = str(error.value)
        named = path.name in message or "shard-" in message or "by a newer version" in message
        assert named, f"{number}: {message}"
        assert "\n" not in message and message.endswith(".") and len(message) < 600, message
        path.write_bytes(content)
    assert len(Corpus(tmp_path)) == 300


def json_of(content):
    """The text of a JSON value, in one form; "" of anything else."""
    try:
        return json.dumps(json.loads(content))
    except ValueError:
        return ""


def test_a_letter_flipped_in_the_vocabulary_is_refused(tmp_path):
    prepared(tmp_path)
    path = tmp_path / "vocabulary.spm"
    path.write_bytes(path.read_bytes().replace(b"dog", b"dig", 1))
    message = "vocabulary.spm and corpus.json that do not belong together. Copy them again, or prep"
    for door in (Corpus, prepared):
        with pytest.raises(ValueError, match=message):
            door(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="vocabulary.spm: this vocabulary .* is missing"):
        Corpus(tmp_path)


def test_a_corpus_of_before_the_digests_of_its_files_opens(tmp_path):
    prepared(tmp_path, files=[__file__])
    for name in ("corpus.json", "preparation.json"):
        content = json.loads((tmp_path / name).read_text())
        assert len(content.pop("files")) == 1
        (tmp_path / name).write_text(json.dumps(content))
    assert len(Corpus(tmp_path)) == 300
    with pytest.raises(FileExistsError, match="already holds this corpus, complete"):
        prepared(tmp_path, files=[__file__])


def test_a_preparation_names_its_files_that_have_changed(tmp_path):
    files = [tmp_path / "a.tsv", tmp_path / "b.tsv", tmp_path / "pipe", tmp_path / "nowhere"]
    files[0].write_text("a\tb\n")
    files[1].write_text("c\td\n")
    os.mkfifo(files[2])
    prepared(tmp_path / "corpus", files=files)
    os.utime(files[0])
    with pytest.raises(FileExistsError, match="already holds this corpus"):
        prepared(tmp_path / "corpus", files=files)
    files[1].write_text("c\tD\n")  # as many bytes
    with pytest.raises(FileExistsError, match=r"from before a change of \S+/b.tsv; choose"):
        prepared(tmp_path / "corpus", files=files)
    prepared(tmp_path / "corpus", files=files, overwrite=True)
    (tmp_path / "corpus" / "preparation.json").write_text("[")
    with pytest.raises(ValueError, match="preparation.json: expected the settings of a prep"):
        prepared(tmp_path / "corpus", files=files)


def test_a_corpus_of_a_newer_version_or_none_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no complete corpus: corpus.json is missing"):
        Corpus(tmp_path)
    (tmp_path / "corpus.json").write_text(json.dumps({"format_version": 99}))
    with pytest.raises(ValueError, match="newer version .*format 99; this one reads 1"):
        Corpus(tmp_path)


# Preparation


def test_an_interrupted_preparation_continues_after_its_last_shard(tmp_path, corpus):
    def interrupted():
        yield from PAIRS[:150]
        raise KeyboardInterrupt

    calls = iter([lambda: iter(PAIRS), interrupted])  # the vocabulary is learned first
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(tmp_path, lambda: next(calls)(), **QUICK)
    names = sorted(path.name for path in tmp_path.glob("*.*") if path.name[0] != ".")
    assert {"preparation.json", "vocabulary.spm"} <= set(names) and "corpus.json" not in names
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("shard-*")}
    reads = []

    def read():
        reads.append(1)
        return iter(PAIRS)

    continued = prepare_corpus(tmp_path, read, **QUICK)
    assert len(reads) == 1  # no second sample
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert continued.digest == corpus.digest
    assert_same_batches(PreparedBatches(continued), PreparedBatches(corpus), epochs=[0])


def test_a_corpus_is_replaced_only_on_demand(tmp_path):
    prepared(tmp_path)
    with pytest.raises(FileExistsError, match="already holds this corpus, complete"):
        prepared(tmp_path)
    with pytest.raises(FileExistsError, match=r"of other .* settings \(not the same vocabulary\)"):
        prepared(tmp_path, vocabulary_size=150)
    with pytest.raises(FileExistsError, match=r"of other examples .* \(not the same origin\)"):
        prepared(tmp_path, origin="elsewhere")
    small = prepared(tmp_path, PAIRS[:70], vocabulary_size=110, overwrite=True)
    assert len(small) == 70 and small.tokenizers()[0].vocabulary_size() == 110
    assert len(list(tmp_path.glob("shard-*"))) == 1


def test_two_processes_cannot_prepare_one_corpus(tmp_path):
    inside = []

    def read():
        with pytest.raises(BlockingIOError, match="Another process writes the corpus"):
            prepared(tmp_path)
        inside.append(1)
        return iter(PAIRS)

    prepare_corpus(tmp_path, read, **QUICK)
    assert inside


def test_the_stream_is_cleaned_as_memory_is(tmp_path, caplog):
    rows = [
        ("A cafe\u0301 dog", "The DOG"),
        ("a b", "c"),
        ("x" * 30, "y"),
        ("a", "bbbbbb"),
        ("A b", "C"),
    ]
    options = {"normalization": "NFC", "lowercase": True, "max_characters": 20, "max_ratio": 3}
    options["unique"] = True
    expected = data.clean(data.Examples(*map(list, zip(*rows, strict=True))), **options)
    caplog.clear()
    corpus = prepared(
        tmp_path, [*rows, ("", "b"), (" ", "c")], vocabulary_size=None, cleaning=options
    )
    assert "1 dropped, longer than 20" in caplog.text and "1 repeated (dropped)" in caplog.text
    assert "Dropped 2 of 7 examples with a blank side" in caplog.text
    found = [
        tuple(each.decode([side])[0] for each, side in zip(corpus.tokenizers(), pair, strict=True))
        for pair in (corpus[n] for n in range(len(corpus)))
    ]
    assert found == list(zip(*expected, strict=True)) == [("a café dog", "the dog"), ("a b", "c")]
    assert corpus.cleaning == options


def test_pairs_are_remembered_on_disk_as_in_memory():
    rows = [(str(n * n % 97), str(n % 5)) for n in range(400)]
    kept = [list(Cleaner(unique=True, on_disk=disk).iterate(rows)) for disk in (False, True)]
    assert kept[0] == kept[1] == list(dict.fromkeys(rows))


def test_a_vocabulary_is_learned_from_a_random_sample_of_the_stream():
    rows = [(str(n),) for n in range(1000)]
    sample = preparation_module._reservoir(iter(rows), 100)
    numbers = [int(text) for (text,) in sample]
    assert len(set(numbers)) == 100 and numbers == sorted(numbers)
    assert 300 < np.mean(numbers) < 700
    assert preparation_module._reservoir(iter(rows), 2000) == rows


def test_a_stream_that_is_read_once_is_written_whole(tmp_path, corpus):
    stream = iter(PAIRS)
    once = prepare_corpus(tmp_path, lambda: stream, read_once=True, sample=40, **QUICK)
    assert len(once) == 300
    tokenizer = kt.train_tokenizer(texts_of(PAIRS[:40]), 120)
    assert once.tokenizers()[0].proto == tokenizer.proto


@pytest.mark.parametrize(
    "rows, options, message",
    [
        ([], {}, "at least one complete example, received 0"),
        ([("", "a")], {}, "received 1, all with a blank side"),
        ([("aaaa", "a")], {"cleaning": {"max_characters": 2}}, "1 dropped, longer than 2"),
        (PAIRS, {"kind": "words"}, "kind must be one of pairs, texts"),
        (PAIRS, {"sample": 0}, "sample must be an integer of at least 1"),
        (PAIRS, {"num_processes": 0}, "num_processes must be"),
        (PAIRS, {"cleaning": {"max_ratio": 0.5}}, "max_ratio must be at least 1"),
        (
            [("a", 7)],
            {"tokenizers": True},
            r"tuple of 2 str .source, target.; received .'a', 7. as",
        ),
        ([("a",)], {}, "must be a tuple of 2 str"),
        ([("a", "b"), ("a", "b", "c")], {}, "must be a tuple of 2 str .* as number 2"),
        (["ab"], {}, "must be a tuple of 2 str .*; received 'ab'"),
        (["a"], {"kind": "texts"}, "must be a tuple of 1 str .text.; received 'a'"),
        ([("a", "\ud800")], {"tokenizers": True}, "half a surrogate pair"),
    ],
)
def test_what_cannot_be_prepared_is_an_error(tmp_path, corpus, rows, options, message):
    if options.get("tokenizers"):
        options = {"tokenizers": corpus.tokenizers()}
    with pytest.raises(ValueError, match=message):
        prepared(tmp_path, rows, **options)


def test_texts_have_no_sides_to_compare(tmp_path):
    with pytest.raises(ValueError, match="plausible compares the sides of pairs; received kind="):
        prepared(tmp_path, [("a 1",)] * 50, "texts", cleaning={"plausible": True})


def test_a_corpus_that_was_replaced_goes_after_a_kill(tmp_path, monkeypatch):
    prepared(tmp_path, PAIRS[:20])

    def kill(files, folder, but=None):
        if but is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(atomic.OwnedFiles, "remove_replaced", kill)
    with pytest.raises(KeyboardInterrupt):
        prepared(tmp_path, PAIRS[:30], overwrite=True)
    monkeypatch.undo()
    assert (tmp_path / ".replaced-1" / "corpus.json").exists()
    with pytest.raises(FileExistsError, match="already holds this corpus, complete"):
        prepared(tmp_path, PAIRS[:30])
    assert not (tmp_path / ".replaced-1").exists() and len(Corpus(tmp_path)) == 30


def test_a_preparation_that_failed_before_it_made_anything_is_repeated_otherwise(tmp_path):
    with pytest.raises(ValueError, match="max_ratio must be"):
        prepared(tmp_path, cleaning={"max_ratio": 0.5})
    with pytest.raises(ValueError, match="longer than 1"):
        prepared(tmp_path, cleaning={"max_characters": 1})
    assert len(prepared(tmp_path, PAIRS[:20])) == 20
    assert not list(tmp_path.glob(".repl*"))
    with pytest.raises(FileExistsError, match="not the same cleaning"):
        prepared(tmp_path, PAIRS[:20], cleaning={})


def test_an_error_of_a_process_and_its_end_are_reported(tmp_path, corpus):
    arguments = {
        "texts": [["a"]],
        "vocabularies": corpus.vocabularies[:1],
        "header": {"dtype": "<u2"},
    }
    with (
        pytest.raises(OSError, match="nowhere/shard: the shard cannot be written"),
        ShardWriters(1) as writers,
    ):
        writers.run("write_texts", [{"path": str(tmp_path / "nowhere" / "shard"), **arguments}])
    with ShardWriters(1) as writers:
        writers._processes[0].kill()
        with pytest.raises(
            ChildProcessError, match=r"ended \(exit code -9\), perhaps for lack of mem"
        ):
            writers.run("write_texts", [{"path": str(tmp_path / "shard"), **arguments}] * 4)


# Batches


@pytest.mark.usefixtures("usual_number_of_shapes")
@pytest.mark.parametrize(
    "options",
    [{}, {"tokens_per_batch": 200, "seed": 3}, {"batch_size": 7, "shuffle": False, "multiple": 1}],
)
def test_batches_equal_those_of_memory(corpus, options):
    in_memory = kt.TranslationBatches(*ids_of(corpus), **options)
    assert_same_batches(PreparedBatches(corpus, **options), in_memory)
    assert len(in_memory.shapes) > 3


def test_devices_that_come_after_the_plan_have_equal_shares(corpus, monkeypatch):
    batches = PreparedBatches(corpus, batch_size=7, num_buckets=2)
    monkeypatch.setattr(distribution, "num_shares", lambda: 4)
    for inputs, labels in batches:
        assert {len(array) for array in (*inputs.values(), labels)} == {len(labels)}
        assert len(labels) % 4 == 0
    assert sum(labels.any(axis=1).sum() for _, labels in batches) == len(corpus)


def test_batches_of_texts_equal_those_of_memory(tmp_path):
    rows = [(text,) for text in sentences(200, 4)]
    corpus = prepared(tmp_path, rows, "texts")
    in_memory = kt.TextBatches(*ids_of(corpus, rows), tokens_per_batch=150, seed=2)
    assert_same_batches(PreparedBatches(corpus, tokens_per_batch=150, seed=2), in_memory)


@pytest.fixture(scope="module")
def sampled_corpus(tmp_path_factory):
    """A corpus of one shard."""
    return prepared(tmp_path_factory.mktemp("corpora") / "sampled", shard_size=1000)


@pytest.mark.slow
def test_random_segmentations_equal_those_of_memory(sampled_corpus):
    corpus, options = sampled_corpus, {"tokens_per_batch": 300, "seed": 3}
    sides = list(zip(*PAIRS, strict=True))
    (tokenizer, _) = corpus.tokenizers()

    def resample(epoch):
        return [
            tokenizer.encode(side, sample=True, alpha=0.1, seed=(3, epoch, number))
            for number, side in enumerate(sides)
        ]

    in_memory = kt.TranslationBatches(*ids_of(corpus), resample=resample, **options)
    on_disk = PreparedBatches(corpus, subword_alpha=0.1, num_processes=1, **options)
    assert_same_batches(on_disk, in_memory, epochs=(0, 5, 1))
    plain = PreparedBatches(corpus, **options)
    assert on_disk.num_tokens > plain.num_tokens


@pytest.mark.slow
def test_a_pair_that_outgrows_its_bucket_keeps_its_ids(sampled_corpus):
    # In epochs 0 to 3, which decide the shapes, the texts are in pieces of medium size.
    batches = PreparedBatches(sampled_corpus, subword_alpha=0.0, num_processes=1)
    batches._alpha = 1.0  # then every character is a piece
    batches.epoch = 4
    real = sum(int((labels != PADDING).sum()) for _, labels in batches)
    tokenizer, plain = sampled_corpus.tokenizers()[0], ids_of(sampled_corpus)
    sides = zip(*PAIRS, strict=True)
    characters = [tokenizer.encode(side, sample=True, alpha=1.0) for side in sides]
    longest = [len(ids) + 1 for ids in characters[1]]
    assert sum(map(len, plain[1])) + len(PAIRS) <= real == batches.num_tokens < sum(longest)


def test_an_interrupted_segmentation_is_made_again(corpus, monkeypatch):
    def write(batches, epoch):
        if interruptions.pop(epoch, False):
            raise KeyboardInterrupt
        folder = batches._folder / str(epoch)
        return [shutil.copytree(corpus.folder, folder)]

    interruptions = {7: True}
    monkeypatch.setattr(PreparedBatches, "_write_sampled", write)
    batches = PreparedBatches(corpus, subword_alpha=0.1, batch_size=100)
    batches.epoch = 7
    with pytest.raises(KeyboardInterrupt):
        batches[0]
    batches[0]
    assert os.listdir(batches._folder) == ["7"]


def test_segmentations_of_a_killed_process_are_removed_and_own_ones_at_the_end(corpus, tmp_path):
    batches = PreparedBatches(corpus, subword_alpha=0.1, batch_size=100, cache=tmp_path)
    start = batches._folder.name.partition(f"-{os.getpid()}-")[0]
    others = [tmp_path / f"{start}-{process}-1" for process in (2**22 + 1, os.getppid())]
    for each in (*others, tmp_path / "mine"):
        each.mkdir()
    again = PreparedBatches(corpus, subword_alpha=0.1, batch_size=100, cache=tmp_path)
    kept = {batches._folder, again._folder, others[1], tmp_path / "mine"}
    assert {*tmp_path.iterdir()} == kept  # not what the dead process left
    del batches, again
    gc.collect()
    assert {*tmp_path.iterdir()} == {others[1], tmp_path / "mine"}


@pytest.mark.parametrize("shuffle", [True, False])
def test_corpora_are_mixed_by_weights_and_each_pass_has_each_example_once(
    tmp_path, corpus, shuffle
):
    other = prepared(tmp_path, PAIRS[:60], tokenizers=corpus.tokenizers())
    both = [corpus, other]
    batches = PreparedBatches(both, [1, 1], num_buckets=2, batch_size=8, seed=1, shuffle=shuffle)
    assert batches.num_examples == pytest.approx(120, abs=2)
    first = {tuple(corpus[n][0].tolist()): n for n in range(300)}
    seen, shapes = [], []
    for epoch in range(10):  # two passes over 300 pairs, 60 per epoch
        batches.epoch = epoch
        counts = Counter()
        for inputs, labels in batches:
            shapes.append(labels.shape)
            for row in inputs["source_ids"][labels.any(axis=1)]:
                counts[first[tuple(row[row != PADDING].tolist()[:-1])]] += 1
        assert counts.total() == batches.num_examples
        assert all(counts[n] >= 1 for n in range(60))  # the small corpus is complete
        seen.append(counts)
    totals = sum(seen, Counter())
    large = [totals[n] - 10 * (n < 60) for n in range(300)]
    # Of each bucket an epoch has a whole number of examples: a pass may end one epoch earlier.
    assert set(large) <= {2, 3} and sum(large) <= 600 + 10 * 2
    assert (seen[0] == seen[5]) is False or not shuffle
    assert len(set(shapes)) == len(batches.shapes) == 2
    assert batches.num_tokens == pytest.approx(
        other.lengths[:, 1].sum() + 60 + (corpus.lengths[:, 1].sum() + 300) / 5, abs=1
    )


def test_all_of_several_corpora_are_an_epoch_without_weights(tmp_path, corpus):
    other = prepared(tmp_path, PAIRS[:60], tokenizers=corpus.tokenizers())
    ids = [one + one[:60] for one in ids_of(corpus)]
    assert_same_batches(PreparedBatches([corpus, other]), kt.TranslationBatches(*ids))


def test_corpora_that_differ_cannot_be_mixed(tmp_path, corpus):
    other = prepared(tmp_path, vocabulary_size=110)
    with pytest.raises(ValueError, match="must have the same vocabularies; those of"):
        PreparedBatches([corpus, other])
    for none in ([], str(corpus.folder), [corpus.folder]):
        with pytest.raises(
            ValueError, match=r"Expected one Corpus or several.*; received corpora="
        ):
            PreparedBatches(none)
    for weights in ([1], [1, 0], [1, float("nan")], [1, -1]):
        with pytest.raises(ValueError, match="weights must be 2 numbers above 0"):
            PreparedBatches([corpus, corpus], weights)
    with pytest.raises(ValueError, match=r"subword_alpha must be in \[0, 1\]"):
        PreparedBatches(corpus, subword_alpha=2)


@pytest.mark.slow
def test_three_epochs_from_shards_equal_three_from_memory(corpus, tmp_path):
    def weights_after(batches, folder):
        keras.utils.set_random_seed(5)
        model = kt.Transformer(120, num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.1)
        model.compile(
            kt.paper_optimizer(0.01),
            kt.TokenCrossEntropy(0.1),
            jit_compile=backend.prefers_jit(),
        )
        checkpoint = kt.training.EpochCheckpoint(folder, batches)
        losses = []
        for span in checkpoint.restore(model, 3):
            history = model.fit(batches, **span, callbacks=[checkpoint], shuffle=False, verbose=0)
            losses += history.history["loss"]
        return losses, [value.tobytes() for value in model.get_weights()]

    options = {"batch_size": 32, "num_buckets": 1, "seed": 1}
    on_disk = weights_after(PreparedBatches(corpus, **options), tmp_path / "disk")
    in_memory = weights_after(
        kt.TranslationBatches(*ids_of(corpus), **options), tmp_path / "memory"
    )
    assert on_disk == in_memory and len(on_disk[0]) == 3


# The command


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs `keras-transformer prepare` with arguments and a standard input."""

    def call(*arguments, stdin=b""):
        buffer = io.BufferedReader(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer, "utf-8"))
        code = None
        try:
            console.main(["prepare", *map(str, arguments), "--processes", "1"])
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return out, err + (code if isinstance(code, str) else ""), code

    return call


def lines_of(texts):
    return "".join(f"{text}\n" for text in texts).encode()


@pytest.mark.slow
def test_every_form_of_input_gives_the_same_corpus(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    one, other = PAIRS[:100], PAIRS[100:]
    for number, part in enumerate((one, other)):
        for side, name in enumerate(("en", "de")):
            content = lines_of(pair[side] for pair in part)
            (tmp_path / f"{number}.{name}.gz").write_bytes(gzip.compress(content))
    table = lines_of(f"{target}\t{source}" for source, target in PAIRS)
    (tmp_path / "pairs.tsv").write_bytes(table)
    rows = [{"pair": {"en": source, "de": target}} for source, target in PAIRS]
    (tmp_path / "pairs.jsonl").write_bytes(lines_of(map(json.dumps, rows)))
    size = ["--vocabulary-size", 120]
    folder = tmp_path / "folder"  # for tfds.TranslateFolder
    folder.mkdir()
    for side, name in enumerate(("en", "de")):
        (folder / f"{name}.train.txt").write_bytes(lines_of(pair[side] for pair in PAIRS))
    forms = {
        "files": ["--source", "*.en.gz", "--target", "0.de.gz", "1.de.gz"],
        "table": ["--pairs", "pairs.tsv", "--sides", 2, 1],
        "json": ["--pairs", "pairs.jsonl", "--sides", "pair.en", "pair.de"],
        "stdin": ["--pairs", "-", "--sides", 2, 1],
    }
    with contextlib.suppress(ImportError):  # these read with TensorFlow
        import tensorflow  # noqa: F401
        import tensorflow_datasets  # noqa: F401

        forms["dataset"] = ["--dataset", folder, "--sides", "en", "de"]
    digests = set()
    for name, form in forms.items():
        out, errors, code = command(name, *form, *size, stdin=gzip.compress(table))
        assert code is None, errors
        assert out.startswith(f"{name} holds 300 pairs of ") and "vocabulary: 120 ids" in out
        digests.add(Corpus(name).digest)
    assert len(digests) == 1


def test_texts_and_a_given_vocabulary(tmp_path, monkeypatch, command, small_tasks):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"the dog\n\n  barks\n")
    row = "\t".join(["1", "dog", *"_" * 8])
    (tmp_path / "b.conllu").write_text(f"# text = dogs bark\n{row}\n", "utf-8")
    small_tasks["generator"].save("generator.keras")
    texts = ["--texts", "*.txt", "b.conllu"]
    out, errors, code = command("one", *texts, "--vocabulary-from", "generator.keras")
    assert code is None and "one holds 3 texts" in out, errors
    corpus = Corpus("one")
    (tokenizer,) = corpus.tokenizers()
    assert tokenizer.proto == small_tasks["generator"].tokenizer.proto
    found = [tokenizer.decode(corpus[n])[0] for n in range(3)]
    assert found == ["the dog", "  barks", "dogs bark"]
    out, errors, code = command("two", "--texts", "a.txt", "--vocabulary-from", "one")
    assert code is None and Corpus("two").vocabularies == corpus.vocabularies
    out, errors, code = command("named", "--texts", "a.txt", "--vocabulary-from", "shakespeare")
    (named,) = Corpus("named").tokenizers()
    assert code is None and named.proto == kt.load("shakespeare").tokenizer.proto
    spm = ["--vocabulary-from", "one/vocabulary.spm"]
    out, errors, code = command("three", "--texts", "-", *spm, stdin=b"the dog")
    assert code is None and Corpus("three")[0][0].tolist() == corpus[0][0].tolist()
    (tmp_path / "d.txt").write_text("de\u0301\u00adja\u0300\n", "utf-8")
    for form, text in ("NFC", "d\u00e9j\u00e0"), ("none", "de\u0301\u00adja\u0300"):
        options = ["--texts", "d.txt", "--vocabulary", "char", "--normalization", form]
        command(form, *options)
        (tokenizer,) = Corpus(form).tokenizers()
        assert tokenizer.decode(Corpus(form)[0]) == [text]
        assert Corpus(form).cleaning == {"normalization": None if form == "none" else form}
    out, errors, code = command("no", "--pairs", "a.txt", "--vocabulary-from", "generator.keras")
    assert "generator.keras holds no vocabulary for pairs" in errors and code
    (tmp_path / "blank.txt").write_text("\n \n", "utf-8")
    for name in ("blank.txt", "a.txt"):
        out, errors, code = command("four", "--texts", name, *spm)
        assert (code is None) == (name == "a.txt") == ("four holds" in out), errors
        assert (tmp_path / "four").exists() == (name == "a.txt")


def test_a_pipe_is_read_once(tmp_path, command):
    content = "".join(f"{one}\t{other}\n" for one, other in PAIRS).encode()
    (tmp_path / "file").write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    write = (tmp_path / "pipe").write_bytes
    writer = threading.Thread(target=write, args=(content,), daemon=True)
    writer.start()
    for name in ("pipe", "file"):
        out = tmp_path / f"of {name}"
        _, errors, code = command(out, "--pairs", tmp_path / name, "--vocabulary", "char")
        assert not code, errors
    writer.join()
    assert Corpus(tmp_path / "of pipe").digest == Corpus(tmp_path / "of file").digest


def test_rows_are_the_same_in_every_format(tmp_path, command):
    arrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
    columns = dict(zip(("source", "target"), map(list, zip(*PAIRS, strict=True)), strict=True))
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    (tmp_path / "a.tsv").write_bytes(lines_of("\t".join(pair) for pair in PAIRS))
    with open(tmp_path / "a.csv", "w", newline="", encoding="utf-16") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(PAIRS)
    digests = set()
    for name, *options in (["a.tsv"], ["a.parquet"], ["a.csv", "--quoted"]):
        words = ("--pairs", tmp_path / name, "--vocabulary", "char", *options)
        _, errors, code = command(tmp_path / f"of {name}", *words)
        assert not code, errors
        digests.add(Corpus(tmp_path / f"of {name}").digest)
    assert len(digests) == 1


def test_one_option_is_a_preset_of_filters(tmp_path, command, caplog):
    rows = [(f"the dog {n}", f"der Hund {n}") for n in range(30)]
    rows += [*rows[:3], ("a", "A"), ("12", "34"), ("a", "b" * 10)]
    (tmp_path / "a.tsv").write_bytes(lines_of("\t".join(pair) for pair in rows))
    words = ("--pairs", tmp_path / "a.tsv", "--vocabulary", "char")
    _, errors, code = command(tmp_path / "out", *words, "--clean")
    assert not code, errors
    preset = {"max_ratio": 9.0, "unique": True, "plausible": True}
    other = {"normalization": "NFC", "lowercase": False, "max_characters": 1000}
    assert Corpus(tmp_path / "out").cleaning == preset | other
    assert len(Corpus(tmp_path / "out")) == 30
    for reason in (
        "target equals source",
        "digits of which",
        "over 9.0 times",
        "repeated (dropped",
    ):
        assert reason in caplog.text
    command(tmp_path / "wider", *words, "--clean", "--max-ratio", "12")
    assert Corpus(tmp_path / "wider").cleaning["max_ratio"] == 12
    command(tmp_path / "as before", *words)
    assert "plausible" not in Corpus(tmp_path / "as before").cleaning


def test_a_vocabulary_that_is_not_of_sentencepiece_is_refused(tmp_path, corpus, command):
    tokenizers = pytest.importorskip("tokenizers")
    pairs = BytePairs(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), [])
    tokenizer = ByteLevelTokenizer.of_pairs(pairs)
    model = kt.LanguageModel(tokenizer.vocabulary_size(), num_layers=1, d_model=4, num_heads=1)
    path = tmp_path / "gpt2.keras"
    kt.TextGenerator(model, tokenizer).save(path)
    (tmp_path / "a.txt").write_bytes(b"the dog\n")
    out = tmp_path / "corpus"
    _, errors, code = command(out, "--texts", tmp_path / "a.txt", "--vocabulary-from", path)
    assert code and len(errors.splitlines()) == 1
    assert "read SentencePiece vocabularies alone; learn one" in errors
    assert not out.exists()
    with pytest.raises(ValueError, match="alone; .*ByteLevelTokenizer', 'Sentence"):
        prepared(out, tokenizers=[tokenizer, corpus.tokenizers()[0]])
    with pytest.raises(ValueError, match=r"per side \(source, target\); received tokenizers=\['S"):
        prepared(out, tokenizers=corpus.tokenizers()[:1])


def test_a_corpus_is_not_overwritten_from_its_own_files(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in PAIRS[:20]))
    words = ("out", "--pairs", "pairs.tsv", "--vocabulary", "char")
    assert command(*words)[2] is None
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for given in ("out", "./out/vocabulary.spm"):
        words = ("out", "--pairs", "pairs.tsv", "--overwrite", "--vocabulary-from", given)
        assert "An input must not be a file of the corpus" in command(*words)[1]
    impossible = (*words[:3], "--overwrite", "--max-characters", "0")
    assert "max_characters must be an integer of at least 1" in command(*impossible)[1]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "vocabulary.spm").write_text("mine")
    _, errors, _ = command("mine", "--pairs", "pairs.tsv", "--overwrite")
    assert "mine holds vocabulary.spm, which does not belong to a corpus" in errors
    assert os.listdir(tmp_path / "mine") == ["vocabulary.spm"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--texts and --dataset; received none of them"),
        (["--pairs", "*.conllu.gz"], "b.conllu.gz is a treebank by its name, whose sent"),
        (["--texts", "a", "--unique"], "--unique would not be used: it needs pairs of texts"),
        (["--texts", "a", "--json-lines"], "--json-lines would not be used: it needs --pairs"),
        (["--pairs", "a", "--split", "x"], "--split would not be used: it needs --dataset"),
        (["--pairs", "a", "--pairs", "a"], "Give --pairs once"),
        (["--texts", "a", "--vocabulary-from", "a", "--sample", "9"], "a vocabulary to learn"),
        (["--source", "x.jsonl", "--target", "a"], "x.jsonl is JSON Lines by its name, whose sen"),
        (["--texts", "x.jsonl"], "x.jsonl, line 1: expected a JSON object"),
        (["--texts", "a", "--clean"], "--clean would not be used: it needs pairs of texts"),
        (
            ["--source", "a", "--target", "a", "--quoted"],
            "--quoted would not be used: it needs --p",
        ),
        (["--pairs", "a", "--feature", "x"], "--feature would not be used: it needs --dataset or"),
        (["--texts", "c.conllu"], "c.conllu, line 2: expected a sentence with its text"),
        (["--source", "a"], "Give one of --source (with --target)"),
        (["--pairs", "a", "--texts", "b"], "received --pairs and --texts"),
        (["--pairs", "nowhere"], "nowhere: no such file"),
        (["--texts", "*.nothing"], "*.nothing: no such file"),
        (["--source", "-", "--target", "-"], "standard input can be one file only"),
        (["--source", "a", "a", "--target", "a"], "as many files; received 2 and 1"),
        (["--pairs", "a"], "a, line 1: expected columns 1 and 2"),
        (["--texts", "a", "--sample", "0"], "sample must be an integer of at least 1"),
        (["--texts", "a", "--vocabulary-from", "nowhere"], "No such file"),
        (["--texts", "a", "--vocabulary-from", "a"], "a: Expected a SentencePiece model"),
    ],
)
def test_what_the_command_cannot_do_is_one_sentence(
    tmp_path, monkeypatch, command, arguments, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b.conllu.gz", "c.conllu", "x.jsonl"):
        (tmp_path / name).write_bytes(b"\none\ntwo\n" if name[0] == "c" else b"one\ntwo\n")
    _, errors, code = command("out", *arguments)
    assert code and message in errors and "Traceback" not in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.once
def test_a_preparation_that_is_killed_continues(tmp_path, corpus):
    """With the default of processes; nothing of an incomplete shard is left."""
    path, rows = tmp_path / "pairs.tsv", PAIRS * 700
    path.write_bytes(lines_of("\t".join(pair) for pair in rows))
    run = "from keras_transformer.cli import main; main()"
    command = [sys.executable, "-c", run, "prepare", tmp_path / "corpus", "--pairs", path]
    command += ["--vocabulary-from", corpus.folder]
    process = subprocess.Popen([str(part) for part in command])
    while not list((tmp_path / "corpus").glob("shard-*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "corpus" / "corpus.json").exists()
    subprocess.run([str(part) for part in command], check=True)
    found = Corpus(tmp_path / "corpus")
    assert len(found) == len(rows) and len(found.shard_paths) == 4
    for n in (0, 299, 65_536, 200_001):
        assert found[n][0].tolist() == corpus[n % 300][0].tolist()
    assert not [path for path in os.listdir(found.folder) if path.startswith(".unfinished")]


# The scripts


SMALL = ["--num-layers", 1, "--d-model", 16, "--num-heads", 2, "--d-ff", 16, "--batch-size", 16]
SMALL += ["--warmup-steps", 10, "--epochs", 2, "--average", 0, "--deterministic", "--dropout", 0.1]
SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def dates_files(tmp_path_factory):
    """Short dates as a table, and other ones for validation; few lengths, few shapes."""
    folder = tmp_path_factory.mktemp("dates")
    train = data.dates(num_train=2400, num_valid=1, num_test=1, seed=2).train
    rows = [pair for pair in zip(*train, strict=True) if 8 <= len(pair[0]) < 12]
    (folder / "train.tsv").write_bytes(lines_of("\t".join(pair) for pair in rows[:200]))
    (folder / "valid.tsv").write_bytes(lines_of("\t".join(pair) for pair in rows[200:220]))
    return folder


def weights_of(folder):
    return [w.tobytes() for w in keras.saving.load_model(folder / "model.keras").get_weights()]


def losses_of(folder):
    with open(folder / "history.csv", newline="", encoding="utf-8") as file:
        return [(row["epoch"], row["loss"], row["val_loss"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_translator_trained_from_disk_equals_one_from_memory(dates_files, tmp_path, inside):
    files = ["--valid-pairs", dates_files / "valid.tsv", "--beams", 1]
    train = [sys.executable, SCRIPTS / "train_translation.py", *SMALL, "--subword-alpha", 0.1]
    table = dates_files / "train.tsv"
    prepare_corpus(
        tmp_path / "corpus",
        lambda: data.iterate_pairs(table),
        vocabulary_size=80,
        cleaning={"normalization": "NFC", "max_characters": 1000},
        num_processes=1,
    )
    for name, form in (
        ("disk", ["--prepared", tmp_path / "corpus"]),
        ("memory", ["--pairs", table, "--vocabulary-size", 80]),
    ):
        result = inside([*train, *form, *files, "--output", tmp_path / name])
        assert result.returncode == 0, result.stderr
    assert weights_of(tmp_path / "disk") == weights_of(tmp_path / "memory")
    assert losses_of(tmp_path / "disk") == losses_of(tmp_path / "memory")
    translator = kt.load(tmp_path / "disk" / "model.keras")
    assert translator.normalization == "NFC" and not translator.lowercase


@pytest.mark.slow
@pytest.mark.once
def test_a_language_model_trained_from_disk_equals_one_from_memory(dates_files, tmp_path, inside):
    valid, table = dates_files / "valid.tsv", dates_files / "train.tsv"
    train = [sys.executable, SCRIPTS / "train_language_model.py", *SMALL, "--valid", valid]
    prepare_corpus(
        tmp_path / "corpus",
        lambda: ((line,) for line in data.iterate_lines(table)),
        "texts",
        model_type="char",
        num_processes=1,
    )
    for name, form in (
        ("disk", ["--prepared", tmp_path / "corpus"]),
        ("memory", ["--train", table, "--lines", "--vocabulary", "char"]),
    ):
        result = inside([*train, *form, "--output", tmp_path / name])
        assert result.returncode == 0, result.stderr
    assert weights_of(tmp_path / "disk") == weights_of(tmp_path / "memory")
    assert losses_of(tmp_path / "disk") == losses_of(tmp_path / "memory")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (["--prepared", "nowhere"], "nowhere holds no complete corpus"),
        (["--prepared", "CORPUS"], "needs validation data: give --valid-source"),
        (["--prepared", "CORPUS", "--pairs", "VALID"], "Give training data once"),
        (["--prepared", "CORPUS", "--diversify", 1], "Give --diversify or --prepared, not both"),
        (["--prepared", "CORPUS", "--weights", 1, 2], "--weights must be as many as the folders"),
        (["--prepared", "CORPUS", "--lowercase"], "--lowercase would not be used: it needs data"),
        (["--prepared", "CORPUS", "--normalization", "NFC"], "--normalization would not be used"),
        (["--prepared", "TEXTS"], "--prepared must name corpora of pairs"),
    ],
)
def test_options_that_do_not_go_with_a_corpus_are_named(
    dates_files, corpus, tmp_path, inside, words, message
):
    texts = prepared(tmp_path / "texts", [("a",)], "texts", vocabulary_size=None)
    places = {"CORPUS": corpus.folder, "TEXTS": texts.folder, "VALID": dates_files / "valid.tsv"}
    words = [places.get(word, word) for word in words]
    if "needs" not in message:
        words += ["--valid-pairs", places["VALID"]]
    train = [sys.executable, SCRIPTS / "train_translation.py", "--output", tmp_path / "run"]
    result = inside([*train, *words])
    assert result.returncode == 1 and message in result.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.once
def test_a_run_from_disk_killed_twice_within_an_epoch_ends_with_the_same_bits(
    dates_files, tmp_path
):
    corpus = prepare_corpus(
        tmp_path / "corpus",
        lambda: data.iterate_pairs(dates_files / "train.tsv"),
        vocabulary_size=80,
        cleaning={"normalization": "NFC"},
        num_processes=1,
    )
    options = ["--prepared", corpus.folder, "--valid-pairs", dates_files / "valid.tsv", *SMALL]
    options += ["--subword-alpha", 0.1, "--r-drop", 1, "--checkpoint-every", 3, "--beams", 1]

    def started(output, *words):
        command = [sys.executable, SCRIPTS / "train_translation.py", "--output", output, *words]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert started(whole, *options).wait() == 0
    for moment in ("epoch-0000-batch-*", "epoch-0001-batch-*"):
        process = started(killed, *(["--resume"] if killed.exists() else options))
        while not list(killed.glob(f"checkpoint/{moment}")):
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert list(killed.glob("checkpoint/*-batch-*"))
    assert started(killed, "--resume").wait() == 0
    assert weights_of(killed) == weights_of(whole) and losses_of(killed) == losses_of(whole)
