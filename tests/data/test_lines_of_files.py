"""Line n stays with line n: what could shift or split lines and columns is refused or counted."""

import logging

import numpy as np
import pytest

from keras_transformer import data

pytestmark = pytest.mark.once

WORDS = "der alte Hund läuft 草地 naïve e\u0301 ½ 12 .".split()


def sentences(generator, number):
    return [" ".join(generator.choice(WORDS, generator.integers(2, 9))) for _ in range(number)]


def bytes_of(generator, lines):
    """The lines with either kind of line end, with or without a mark and a last line end."""
    end = str(generator.choice(["\n", "\r\n"]))
    text = end.join(lines) + end * (generator.random() < 0.5 or not lines[-1])
    return b"\xef\xbb\xbf" * (generator.random() < 0.3) + text.encode()


@pytest.mark.parametrize("seed", range(20))
def test_line_n_translates_line_n_however_each_file_was_written(write, seed):
    generator = np.random.default_rng(seed)
    number = int(generator.integers(2, 30))
    sides = [
        [text * (generator.random() < 0.8) for text in sentences(generator, number)]
        for _ in range(2)
    ]
    paths = [write(name, bytes_of(generator, side)) for name, side in zip("st", sides, strict=True)]
    assert list(data.iterate_files(*paths)) == list(zip(*sides, strict=True))
    longer = [write("longer", bytes_of(generator, [*sides[0], "one more"])), paths[1]]
    with pytest.raises(ValueError, match=f"received {number} in .*t and {number + 1} in .*longer"):
        list(data.iterate_files(*longer))


@pytest.mark.parametrize("seed", range(20))
def test_a_row_with_a_tab_more_or_less_is_named(write, seed):
    generator = np.random.default_rng(seed)
    number, width = int(generator.integers(3, 30)), int(generator.integers(2, 5))
    rows = [sentences(generator, width) for _ in range(number)]
    lines = ["\t".join(row) for row in rows]
    assert data.read_pairs(write("whole", "\n".join(lines))).target == [row[1] for row in rows]
    place = int(generator.integers(1, number))
    column = int(generator.integers(width))
    rows[place][column] = rows[place][column].replace(" ", "\t", 1)
    lines[place] = "\t".join(rows[place])
    message = f"line {place + 1}: expected {width} columns as in line 1, received {width + 1}"
    for read in (data.read_pairs, data.read_labeled):
        with pytest.raises(ValueError, match=message):
            read(write("tab", "\n".join(lines)))
    lines[place] = "\t".join(sentences(generator, width - 1))
    with pytest.raises(ValueError, match=f"line {place + 1}: expected .*columns"):
        data.read_pairs(write("fewer", "\n".join(lines)))


def test_blank_lines_and_empty_columns_do_not_change_the_number_of_columns(write):
    path = write("t", "a b\tA B\tx\n\n  \nc d\tC D\t\n\tE\tx\n")
    assert list(data.iterate_pairs(path)) == [
        ("a b", "A B"),
        ("", ""),
        ("", ""),
        ("c d", "C D"),
        ("", "E"),
    ]


def test_both_sides_are_two_files_two_columns_two_fields(write, caplog):
    path = write("t", "a\tA\n")
    data.read_files(path, path.parent / "." / "t")
    assert "are the same file: each sentence translates itself" in caplog.text
    with pytest.raises(ValueError, match="The columns must differ; received source=2, target=2"):
        data.read_pairs(path, 2, 2)
    with pytest.raises(ValueError, match="must be two fields; received source='a', target='a'"):
        data.read_pairs(path, "a", "a", json_lines=True)
    records = write("t.jsonl", '{"text": "a"}\n')
    with pytest.raises(ValueError, match="must be two fields; received text='text', label='text'"):
        data.read_labeled(records, label="text")


def test_a_name_of_two_columns_and_names_within_the_rows_are_refused(write):
    with pytest.raises(ValueError, match="one column named 'en', received 2. Choose it by its nu"):
        data.read_pairs(write("t", "en\ten\tde\na\tb\tc\n"), "en", "de")
    with pytest.raises(ValueError, match="line 3: expected an example, received the names of the"):
        data.read_pairs(write("t", "en\tde\na\tb\nen\tde\nc\td\n"), "en", "de")


LABELED = "".join(f"text number {n}\t{('good', 'bad')[n % 2]}\n" for n in range(20))


def test_a_first_line_of_names_is_not_a_class(write):
    with pytest.raises(ValueError, match="line 1: .*names of the columns, it seems: 'label'"):
        data.read_labeled(write("t", "sentence\tlabel\n" + LABELED))
    path = write("t", "文本\t标签\n" + LABELED)
    with pytest.raises(ValueError, match="'标签' is the only label of 3 that occurs once"):
        data.read_labeled(path)
    assert set(data.read_labeled(path, "文本", "标签").labels) == {"good", "bad"}
    assert len(data.read_labeled(write("t", LABELED)).texts) == 20
    rare = write("t", "one text\trare\nanother text\trarer\n" + LABELED)
    assert set(data.read_labeled(rare).labels) == {"good", "bad", "rare", "rarer"}


def test_a_first_line_of_names_is_not_a_tag(write):
    rows = "the\tDET\ndog\tNOUN\n\n" * 9
    with pytest.raises(ValueError, match="line 1: .*names of the columns, it seems: 'pos' is the"):
        data.read_tagged(write("t", "token\tpos\n\n" + rows))
    assert len(data.read_tagged(write("t", rows + "runs\tVERB\n")).tags) == 10


def test_a_first_line_of_names_among_pairs_is_reported(write, caplog):
    rows = "".join(f"the dog {n}\tder Hund {n}\n" for n in range(20))
    with caplog.at_level(logging.WARNING):
        assert len(data.read_pairs(write("t", "english\tgerman\n" + rows)).source) == 21
    assert "line 1 is the only one of single words. If it names the columns" in caplog.text
    caplog.clear()
    data.read_pairs(write("t", "Go.\tGeh.\n" + rows + "Stop.\tHalt.\n"))
    data.read_pairs(write("t", "en\tde\n" + rows), "en", "de")
    assert not caplog.records


@pytest.mark.parametrize("code", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_other_unicode_encodings_without_a_mark_are_not_utf_8(write, code):
    path, other = write("s", "hello\n草地\n".encode(code)), write("t", "hallo\nwelt\n")
    for read in (
        lambda: data.read_files(other, path),
        lambda: data.read_text(path),
        lambda: data.read_texts(path),
        lambda: data.read_labeled(path),
    ):
        with pytest.raises(
            ValueError, match="s, line 1: expected UTF-8, received a NUL.* Save the file as UTF-8.$"
        ):
            read()
    with pytest.raises(ValueError, match="line 3: expected UTF-8, received a NUL"):
        data.read_text(write("s", "a\nb\nc\0d\n"))


TREE = "# text = dogs run\n1\tdogs\t_\tNOUN{0}\n2\trun\t_\tVERB{0}\n\n".format("\t_" * 6)


@pytest.mark.parametrize("name", ["x.conllu", "x.CONLLU", "x.conll", "x.ConllU.GZ", "x.conllu.xz"])
def test_a_name_tells_a_treebank_to_every_reader(write, name):
    path = write(name, TREE)
    assert data.read_texts(path) == ["dogs run"]
    assert data.read_tagged(path).tags == [["NOUN", "VERB"]]
    for read in (data.read_pairs, data.read_labeled):
        with pytest.raises(ValueError, match="is a treebank by its name"):
            read(path)
    with pytest.raises(ValueError, match="is a treebank by its name"):
        data.iterate_files(write("s", "a\n"), path)


@pytest.mark.parametrize("name", ["x.jsonl", "x.JSON.gz", "x.ndjson"])
def test_a_name_tells_json_lines_to_every_reader(write, name):
    path = write(name, '{"source": "a", "target": "b"}\n')
    assert list(data.iterate_pairs(path)) == [("a", "b")]
    assert data.read_texts(path, "target") == ["b"]
    for read in (data.read_tagged, lambda path: data.read_files(write("s", "a\n"), path)):
        with pytest.raises(ValueError, match="is JSON Lines by its name"):
            read(path)
    assert list(data.iterate_pairs(write("x.txt", path.read_bytes()), json_lines=True))


def test_a_treebank_of_another_name_is_told_what_names_one(write):
    with pytest.raises(ValueError, match=r"name of a treebank .* must end in .conllu or .conll"):
        data.read_tagged(write("x.txt", TREE))


def test_blank_texts_are_dropped_and_counted(write, caplog):
    with caplog.at_level(logging.WARNING):
        assert data.read_texts(write("t", "a\n\n \nb\n")) == ["a", "b"]
    assert "dropped 2 of 4 lines, blank" in caplog.text


# Validation data


@pytest.mark.parametrize("seed", range(20))
def test_no_text_is_on_both_sides_of_a_split(seed, caplog):
    generator = np.random.default_rng(seed)
    distinct = sentences(generator, int(generator.integers(20, 300)))
    number = int(generator.integers(200, 1000))
    texts = [str(generator.choice(distinct)) for _ in range(number)]
    texts = [text.upper() if generator.random() < 0.2 else f" {text} " for text in texts]
    records = (
        texts,
        data.Examples(texts, texts),
        data.TaggedSentences([text.split() for text in texts], [text.split() for text in texts]),
    )
    for examples in records:
        train, valid = data.train_valid_split(examples)
        assert data.num_shared(valid, data.text_keys(train)) == 0
        assert data.num_shared(train, data.text_keys(valid)) == 0
        columns = [each if isinstance(each, list) else each[0] for each in (train, valid)]
        assert sum(map(len, columns)) == number and min(map(len, columns)) > 0
    assert "the training data has none" in caplog.text


def test_a_text_that_fills_the_data_is_trained_on():
    examples = ["the same"] * 500 + [f"text {n}" for n in range(20)]
    train, valid = data.train_valid_split(examples)
    assert valid == ["text 0"] and len(train) == 519


def test_a_text_is_the_same_in_every_form():
    forms = ["The  café", "the cafe\u0301", "\ufeffTHE CAF\u00c9 ", "the\u3000café"]
    assert len(set(map(data.text_key, forms))) == 1
    assert data.text_key(["The", "café"]) == ("the", "café") != data.text_key("the café")


def test_few_distinct_texts_are_split_by_their_places():
    train, valid = data.train_valid_split(["a"] * 59 + ["A ", "b"])
    assert (len(train), len(valid)) == (59, 2)
    assert data.num_shared(valid, data.text_keys(train)) == 2
