"""Files as people have them: Parquet, zstd, UTF-16, CSV, datasets of Hugging Face."""

import csv
import gzip
import json
import re
import sys

import numpy as np
import pytest

from keras_transformer import data

pytestmark = pytest.mark.once

PAIRS = [("a dog", "ein Hund"), ("the caf\u00e9", "das \u8336"), ("", "x")]


# Parquet and what Arrow unpacks


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow")


@pytest.fixture
def table(arrow, tmp_path):
    """A function that writes columns as Parquet, several row groups each."""
    parquet = pytest.importorskip("pyarrow.parquet")

    def table(name, **columns):
        parquet.write_table(arrow.table(columns), tmp_path / name, row_group_size=2)
        return tmp_path / name

    return table


def test_pairs_of_parquet_are_read_in_order(table):
    source, target = map(list, zip(*PAIRS, strict=True))
    path = table("x.PARQUET", id=[1, 2, 3], target=target, source=source)
    assert list(data.iterate_pairs(path)) == PAIRS
    assert data.read_pairs(path) == (source[:2], target[:2])
    assert next(data.iterate_pairs(path, "target", "source")) == ("ein Hund", "a dog")
    nested = table("y.parquet", translation=[{"en": one, "de": other} for one, other in PAIRS])
    assert list(data.iterate_pairs(nested, "translation.en", "translation.de")) == PAIRS


def test_a_field_may_have_a_dot_in_its_name(table, write):
    source, target = map(list, zip(*PAIRS, strict=True))
    names = "translation.en", "translation.de"
    parquet = table("x.parquet", **dict(zip(names, (source, target), strict=True)))
    lines = (json.dumps(dict(zip(names, pair, strict=True))) for pair in PAIRS)
    for path in (parquet, write("x.jsonl", "\n".join(lines))):
        assert list(data.iterate_pairs(path, *names)) == PAIRS
        with pytest.raises(ValueError, match="1: expected text in the field 'translation.fr', rec"):
            list(data.iterate_pairs(path, "translation.en", "translation.fr"))


def test_a_nul_is_not_text(table, write):
    with pytest.raises(ValueError, match=r"x.jsonl, line 2: .* received a NUL in 'a.x00b'"):
        data.read_texts(write("x.jsonl", '{"text": "a"}\n{"text": "a\\u0000b"}\n'))
    with pytest.raises(ValueError, match=r"x.parquet, row 1: .* received a NUL in 'a.x00b'"):
        data.read_texts(table("x.parquet", text=["a\0b"]))


def test_texts_and_labels_of_parquet_and_of_json_lines(table, write):
    texts, labels = ["good dog", "bad cat"], ["yes", "no"]
    parquet = table("x.parquet", label=labels, text=texts)
    lines = '{"text": "good dog", "label": "yes"}\n\n{"text": "bad cat", "label": "no"}\n'
    for path in (parquet, write("x.jsonl", lines)):
        assert data.read_texts(path) == texts and data.read_texts(path, "label") == labels
        assert data.read_labeled(path) == (texts, labels)
        assert data.read_labeled(path, "label", "text") == (labels, texts)
    with pytest.raises(ValueError, match="x.jsonl, line 1: expected text in the field 'words', r"):
        data.read_texts(tmp := write("x.jsonl", lines), "words")
    with pytest.raises(
        ValueError, match="x.jsonl is JSON Lines by its name, which has no lines of"
    ):
        data.read_tagged(tmp)


def test_a_row_of_parquet_without_text_is_named_with_all_columns(table):
    path = table("x.parquet", source=["a", "b", None], target=["A", "B", "C"], more=[1, 2, 3])
    with pytest.raises(ValueError, match="x.parquet, row 3: expected text in the field 'source'"):
        data.read_pairs(path)
    columns = "row 1: expected text in the field 'de', .*'source', 'target', 'more'. Name a field"
    with pytest.raises(ValueError, match=columns):
        data.read_pairs(path, "source", "de")
    with pytest.raises(ValueError, match="'more', received 1 in an object"):
        data.read_pairs(path, "source", "more")


def test_damaged_parquet_is_one_sentence(table, write):
    content = table("x.parquet", source=["a"] * 100, target=["b"] * 100).read_bytes()
    for damaged in (content[:-9], b"text\n", content[:4]):
        with pytest.raises(
            ValueError, match="y.parquet: expected a complete Parquet file, .*again"
        ):
            data.read_pairs(write("y.parquet", damaged))
    with pytest.raises(FileNotFoundError, match="nothing.parquet: no such file"):
        data.read_texts("nothing.parquet")
    with pytest.raises(ValueError, match="is Parquet by its name, .* given as --pairs, as --texts"):
        data.iterate_files(write("s", "a\n"), "x.parquet")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("number", [1, 100_000])
def test_what_arrow_unpacks_is_read_whatever_its_name(arrow, write, codec, number):
    lines = [f"{n}\t{n * n} caf\u00e9" for n in range(number)]
    path = write("a.tsv", b"")
    with arrow.output_stream(str(path), compression=codec) as stream:
        stream.write("\n".join(lines).encode())
    content = path.read_bytes()
    assert data.read_lines(path) == lines
    with pytest.raises(ValueError, match=rf"a.tsv: expected a complete {codec} file, .*again"):
        data.read_lines(write("a.tsv", content[: len(content) // 2]))


def test_a_name_that_ends_in_zst_tells_the_format_before_it():
    assert data.format_of("A.CONLLU.zst") == data.format_of("a.conllu.xz") == "a treebank"
    assert data.format_of("a.jsonl.lz4") == "JSON Lines" and data.format_of("a.zst") is None


def test_without_arrow_the_pip_line_is_named(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(ImportError, match="x.parquet is Parquet.* pip install pyarrow"):
        data.read_texts(write("x.parquet", b"PAR1"))
    with pytest.raises(ImportError, match="zstd compression needs .* pip install pyarrow"):
        data.read_texts(write("x.zst", b"\x28\xb5\x2f\xfd\x04"))


# Encodings


@pytest.mark.parametrize("code", ["utf-16", "utf-16-be", "utf-32", "utf-32-be", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_encoding_with_a_mark_is_read(write, code, end, pack):
    text = end.join(["a\u0a0d\u2028b\rc", "\u0a0a \U0001f600", "", "caf\u00e9"])
    mark = "\ufeff" if code.endswith("be") else ""
    path = write("a", pack((mark + text).encode(code)))
    assert data.read_lines(path) == text.split(end)
    assert data.read_text(path) == text.replace("\r\n", "\n")
    assert list(data.iterate_pairs(write("b", pack((mark + "a\tb").encode(code))))) == [("a", "b")]


def test_utf_16_that_breaks_off_is_one_sentence(write):
    content = "two\nlines".encode("utf-16")
    for broken in (content[:-1], content + b"\x00\xd8", content + b"\x00\xdc\x00\x00"):
        with pytest.raises(
            ValueError, match="a: expected UTF-16, as its first bytes say, received"
        ):
            data.read_lines(write("a", broken))
    with pytest.raises(ValueError, match="a: expected lines of text, received an empty file"):
        data.read_lines(write("a", b"\xff\xfe"))


GERMAN = "Die Müller hören über fünf grüne Bäume und süße Äpfel."
RUSSIAN = "Добрый день, как дела?"
PORTUGUESE = "O violão da avó não está na cozinha."
SWEDISH = "Han går över ån på en ö."
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy."
JAPANESE = "今日はいい天気ですね。私は本を読むのが好きです。"
CHINESE = "一只狗在草地上奔跑，一个男人在街上骑自行车。"


@pytest.mark.parametrize(
    "text, code",
    [
        *((GERMAN, "latin-1"), (PORTUGUESE, "latin-1"), (SWEDISH, "cp1252"), (CZECH, "iso8859-2")),
        *((CZECH, "cp1250"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"), (CHINESE, "gbk")),
        *((JAPANESE, "euc-jp"), (JAPANESE, "shift-jis"), ("caf\u00e9", "latin-1")),
    ],
)
def test_another_encoding_is_refused_with_line_byte_and_its_readings(
    write, monkeypatch, text, code
):
    pytest.importorskip("charset_normalizer")
    content = ("plain\n" * 300 + f"{text}\n" * 20).encode(code)
    path = write("a", content)
    message = (
        r"a, line 301: expected UTF-8, received the invalid byte 0x\w\w. Save the file as UTF-8"
    )
    with pytest.raises(ValueError, match=rf"{message}; if ") as error:
        data.read_lines(path)
    readings = re.findall(r"if '(.*?)' reads right, with iconv -f (\S+) -t", str(error.value))
    assert len(readings) == len(dict(readings)) <= 3  # for a person to choose from
    for reading, name in readings:
        assert reading[:20] in content.decode(name)
    (name,) = [name for reading, name in readings if reading in text]
    assert content.decode(name).splitlines()[300] == text
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    with pytest.raises(ValueError, match=rf"{message}\.$"):
        data.read_lines(path)


# Tables by the rules of CSV


def test_a_blank_before_a_quotation_mark_does_not_belong_to_the_field(write):
    path = write("a.csv", '"a", "b, c"\n"d", "e"\n')
    assert data.read_pairs(path, quoted=True) == (["a", "d"], ["b, c", "e"])


def test_a_field_too_long_for_csv_has_another_cure(write):
    path = write("a.csv", f'"{"x" * 140_000}",b\n')
    with pytest.raises(ValueError, match="can be read without quotation marks, or as JSON Lines"):
        data.read_pairs(path, quoted=True)


def test_a_table_whose_columns_commas_separate_needs_the_rules_of_csv(write):
    path = write("a.csv", "id,en,de\n1,a,b\n")
    for read, names in ((data.read_pairs, ("en", "de")), (data.read_labeled, ("de", "en"))):
        with pytest.raises(ValueError, match=r"a column named .*commas .* \(--quoted\)"):
            read(path, *names)
        with pytest.raises(ValueError, match=r"columns 1 and 2.* with commas .* \(--quoted\)"):
            read(path)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name, separator", [("a.tsv", "\t"), ("a.csv", ","), ("a.CSV.gz", ",")])
def test_what_a_writer_of_csv_has_written_is_read(tmp_path, seed, name, separator):
    generator = np.random.default_rng(seed)
    pieces = ["a", "b", ",", "\t", '"', "\n", " ", "caf\u00e9"]
    rows = [["x".join(generator.choice(pieces, 5)).strip() + "." for _ in range(3)] for _ in "abcd"]
    path = tmp_path / name
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator).writerows([["id", "en", "de"], *rows])
    expected = [tuple(row[1:]) for row in rows]
    assert list(data.iterate_pairs(path, "en", "de", quoted=True)) == expected
    found = data.iterate_pairs(path, "2", "3", quoted=True)
    assert list(found)[1:] == expected
    texts, labels = map(list, zip(*expected, strict=True))
    assert data.read_labeled(path, "en", "de", quoted=True) == (texts, labels)


def test_rows_of_csv_are_numbered_by_their_first_line(write):
    path = write("a", 'a\t"b\nc"\n\nd\te\tf\n')
    with pytest.raises(ValueError, match="a, line 4: expected 2 columns as in line 1, received 3"):
        list(data.iterate_pairs(path, quoted=True))
    path = write("a", 'a\tb\nc\t"d\n')
    with pytest.raises(
        ValueError, match="a, line 2: expected a row of CSV, received .* Close each"
    ):
        list(data.iterate_pairs(path, quoted=True))
    assert list(data.iterate_pairs(path)) == [("a", "b"), ("c", '"d')]


# Datasets of Hugging Face


@pytest.fixture
def hugging_face():
    return pytest.importorskip("datasets")


def saved(dataset, tmp_path):
    dataset.save_to_disk(tmp_path / "saved")
    return f"hf:{tmp_path / 'saved'}"


def test_a_translation_dataset_on_disk_is_read(hugging_face, tmp_path):
    kind = hugging_face.Translation(languages=["en", "de"])
    features = hugging_face.Features({"id": hugging_face.Value("string"), "translation": kind})
    rows = {
        split: {
            "id": [f"{n}" for n in range(len(pairs))],
            "translation": [{"en": one, "de": other} for one, other in pairs],
        }
        for split, pairs in {"train": PAIRS * 500, "validation": PAIRS[1:2]}.items()
    }
    name = saved(
        hugging_face.DatasetDict(
            {
                split: hugging_face.Dataset.from_dict(each, features=features)
                for split, each in rows.items()
            }
        ),
        tmp_path,
    )
    train, valid, test = data.read_splits(name, "en", "de")
    complete = [pair for pair in PAIRS if all(pair)]
    assert list(zip(*train, strict=True)) == complete * 500
    assert (valid, test) == ((["the caf\u00e9"], ["das \u8336"]), None)
    assert list(data.iterate_split(name, "train", "de", "en"))[:2] == [
        pair[::-1] for pair in PAIRS[:2]
    ]
    with pytest.raises(ValueError, match="in the feature 'fr', received the features id, "):
        data.read_splits(name, "fr", "de")
    with pytest.raises(ValueError, match="a split among train, validation"):
        list(data.iterate_split(name, "test", "en", "de"))


def test_labels_tags_and_texts_of_a_dataset_on_disk_have_their_names(hugging_face, tmp_path):
    labels = hugging_face.ClassLabel(names=["no", "yes"])
    tags = hugging_face.Sequence(hugging_face.ClassLabel(names=["NOUN", "VERB"]))
    features = hugging_face.Features(
        {
            "text": hugging_face.Value("string"),
            "label": labels,
            "tokens": hugging_face.Sequence(hugging_face.Value("string")),
            "upos": tags,
        }
    )
    columns = {
        "text": ["good", "bad", None],
        "label": [1, 0, -1],
        "tokens": [["dogs", "run"], ["cats"], ["sleep"]],
        "upos": [[0, 1], [0], [1]],
    }
    name = saved(hugging_face.Dataset.from_dict(columns, features=features), tmp_path)
    assert data.read_labeled_splits(name).train == (["good", "bad"], ["yes", "no"])
    assert data.read_tagged_splits(name).train == (
        [["dogs", "run"], ["cats"], ["sleep"]],
        [["NOUN", "VERB"], ["NOUN"], ["VERB"]],
    )
    assert data.read_text_splits(name) == (["good", "bad"], None, None)
    assert list(data.iterate_text_split(name, "train", "text")) == ["good", "bad", ""]


def test_the_languages_among_several_texts_must_be_named(hugging_face, tmp_path):
    columns = {"id": ["7", "8"], "source": ["Hund", "Kuh"], "target": ["dog", "cow"]}
    name = saved(hugging_face.Dataset.from_dict(columns), tmp_path)
    for sides in ({}, {"source": "source"}, {"target": "target"}):
        with pytest.raises(ValueError, match="languages, or their names, received id, source, tar"):
            data.read_splits(name, **sides)
    train = (["Hund", "Kuh"], ["dog", "cow"])
    assert data.read_splits(name, "source", "target").train == train
    two = hugging_face.Dataset.from_dict(columns).remove_columns("id")
    name = saved(two, tmp_path / "two")
    assert data.read_splits(name).train == data.read_splits(name, target="target").train == train
    assert data.read_splits(name, target="source").train == train[::-1]


def test_texts_without_a_label_are_left_out_and_sentences_without_a_tag_named(
    hugging_face, tmp_path, caplog
):
    labels = hugging_face.ClassLabel(names=["no", "yes"])
    for number, (kind, values) in enumerate(
        [(labels, [0, None, 1]), (hugging_face.Value("string"), ["no", None, "yes"])]
    ):
        features = hugging_face.Features({"text": hugging_face.Value("string"), "label": kind})
        columns = {"text": ["a", "b", "c"], "label": values}
        rows = hugging_face.Dataset.from_dict(columns, features=features)
        found = data.read_labeled_splits(saved(rows, tmp_path / str(number)), "text").train
        assert found == (["a", "c"], ["no", "yes"])
        assert "dropped 1 of 3 texts without a label" in caplog.text
        caplog.clear()
    tags = {"tokens": [["a"], ["b", "c"]], "upos": [["X"], ["Y", None]]}
    with pytest.raises(ValueError, match="train: expected a list of words in 'tokens', and a tag"):
        data.read_tagged_splits(saved(hugging_face.Dataset.from_dict(tags), tmp_path / "tags"))


@pytest.mark.parametrize("blank", ["", " ", "\u200b", "\ufeff\u2060"], ids=ascii)
def test_texts_of_nothing_visible_are_dropped_and_counted(
    hugging_face, tmp_path, write, caplog, blank
):
    rows = hugging_face.Dataset.from_dict({"text": ["a", blank, "b"]})
    assert data.read_text_splits(saved(rows, tmp_path)).train == ["a", "b"]
    assert data.read_texts(write("x.txt", f"a\n{blank}\nb\n")) == ["a", "b"]
    assert caplog.text.count("dropped 1 of 3 ") == 2
    with pytest.raises(ValueError, match="received 1 blank lines"):
        data.read_texts(write("x.txt", f"{blank}\n"))


def test_a_dataset_of_the_hub_is_downloaded_on_request(hugging_face, monkeypatch):
    found = hugging_face.DatasetDict(train=hugging_face.Dataset.from_dict({"text": ["a"]}))
    known = {("us/er",): found, ("us/er", "small"): found}
    monkeypatch.setattr(hugging_face, "load_dataset", lambda *name: known[name])
    for name in ("hf:us/er", "hf:us/er:small"):
        assert data.read_text_splits(name, download=True).train == ["a"]


def test_a_dataset_that_is_not_there_is_one_sentence(hugging_face, tmp_path):
    with pytest.raises(FileNotFoundError, match="hf:no/where: no/where is not a folder. Allow the"):
        data.read_splits("hf:no/where")
    with pytest.raises(ValueError, match=": expected a folder that save_to_disk wrote, or a dat"):
        data.read_splits(f"hf:{tmp_path}")


def test_without_the_library_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        ImportError, match="hf:x needs the package datasets .* pip install datasets"
    ):
        data.read_splits("hf:x")
