"""Tagged sentences, labeled texts and plain text, from files and from tensorflow-datasets."""

import gzip
import logging

import pytest

from keras_transformer.data import (
    LabeledTexts,
    TaggedSentences,
    datasets,
    iterate_conllu,
    read_conllu,
    read_labeled,
    read_labeled_splits,
    read_tagged_lines,
    read_tagged_splits,
    read_text,
    read_text_splits,
)

CONLLU = """\
# sent_id = 1
# text = Don't duck!
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tx=y
1\tDo\tdo\tAUX\tVBP\tMood=Imp\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tduck\tduck\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
3.1\tyou\tyou\tPRON\tPRP\t_\t_\t_\t_\t_
4\t!\t!\tPUNCT\t.\t_\t3\tpunct\t_\t_


# a comment between
1\t_\t_\tSYM\tNFP\t_\t0\troot\t_\t_
2\t10 000\t10 000\tNUM\tCD\t_\t1\tdep\t_\t_
"""
WORDS = [["Do", "n't", "duck", "!"], ["_", "10 000"]]
TAGS = [["AUX", "PART", "VERB", "PUNCT"], ["SYM", "NUM"]]


@pytest.fixture
def write(tmp_path):
    def write(content, compress=False):
        path = tmp_path / "file"
        path.write_bytes(gzip.compress(content.encode()) if compress else content.encode())
        return path

    return write


# Treebanks


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_treebank_gives_its_syntactic_words_and_their_tags(write, ends, compress):
    path = write("\ufeff" + CONLLU.replace("\n", ends), compress)
    assert read_conllu(path) == TaggedSentences(WORDS, TAGS)


def test_any_column_can_be_the_tag(write):
    path = write(CONLLU)
    assert read_conllu(path, "XPOS").tags == [["VBP", "RB", "VB", "."], ["NFP", "CD"]]
    assert read_conllu(path, "DEPREL").tags[1] == ["root", "dep"]
    assert read_conllu(path, "LEMMA").tags == [["do", "not", "duck", "!"], ["_", "10 000"]]
    assert read_conllu(path, "FEATS").tags[0] == ["Mood=Imp", "_", "_", "_"]  # "_": it has none


def test_the_texts_of_a_treebank_are_those_of_its_comments(write):
    sentence = "#text=a dog = a friend\n" + ROW + "\n"
    path = write("# newdoc\n\n" + "# text = Don't duck!\n" + ROW + "\n" + sentence, compress=True)
    assert list(iterate_conllu(path)) == ["Don't duck!", "a dog = a friend"]
    texts = iterate_conllu(write(CONLLU))
    assert next(texts) == "Don't duck!"
    with pytest.raises(ValueError, match="line 11: expected a sentence with its text, '# text = "):
        next(texts)


ROW = "1\tHe\the\tPRON\tPRP\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    "content, column, message",
    [
        (
            ROW + "2\tran\trun\tVERB\n",
            "UPOS",
            "line 2: expected 10 columns .*received 4: .*CoNLL-U",
        ),
        (ROW + ROW, "UPOS", "line 2: expected word 2 .*received the ID '1'.*blank line after"),
        ("x" + ROW, "UPOS", "line 1: expected word 1 .*received the ID 'x1'"),
        (ROW.replace("PRON", ""), "UPOS", "line 1: expected a word and its UPOS, .*'He' and ''"),
        (ROW.replace("He", ""), "UPOS", "line 1: expected a word and its UPOS, .*'' and 'PRON'"),
        (
            "#\n" + ROW.replace("PRP", "_"),
            "XPOS",
            "line 2: .*XPOS, received '_' .of 1 words, 1 have none.. .*choose another col",
        ),
        (ROW, "FEATS", "line 1: expected a tag in column FEATS, .*of 1 words, 1 have none"),
        (
            ROW + "\n\n" + ROW.replace("PRON", "_"),
            "UPOS",
            "line 4: expected a tag in column UPOS, received '_' .of 2 words, 1 have none.. F",
        ),
        ("# nothing else\n", "UPOS", "file: expected at least one sentence, received none. Check"),
        (ROW, "ID", "column must be one of FORM, LEMMA, UPOS, .*; received column='ID'"),
    ],
)
def test_an_invalid_line_of_a_treebank_is_named(write, content, column, message):
    with pytest.raises(ValueError, match=message):
        read_conllu(write(content), column)


# Lines of a word and its tag


@pytest.mark.parametrize("blank", ["\u3000", "\u00a0", "\u2003"])
def test_a_wide_space_is_a_word_as_others(write, blank):
    treebank = write(ROW + ROW.replace("1\tHe\the", f"2\t{blank}\t_"))
    assert read_conllu(treebank).words == [["He", blank]]
    assert read_conllu(treebank).tags == [["PRON", "PRON"]]
    lines = write(f"He \tPRON\n {blank}\tSYM\n{blank}\nHe\tPRON")
    assert read_tagged_lines(lines).words == [["He", blank], ["He"]]


def test_blank_lines_separate_the_sentences(write):
    path = write("\nI\tPRON\n saw \t VERB\r\n \n\n#\tSYM\n10 000\tNUM")
    assert read_tagged_lines(path) == (
        [["I", "saw"], ["#", "10 000"]],
        [["PRON", "VERB"], ["SYM", "NUM"]],
    )


@pytest.mark.parametrize("line", ["saw VERB", "saw\tVERB\tVBD", "saw\t", "\tVERB"])
def test_a_line_without_word_and_tag_is_named(write, line):
    with pytest.raises(ValueError, match="file, line 3: expected word TAB tag.*one TAB, and sent"):
        read_tagged_lines(write(f"I\tPRON\n\n{line}\n"))


def test_a_file_without_sentences_is_an_error(write):
    with pytest.raises(ValueError, match="at least one sentence, received none"):
        read_tagged_lines(write("\n\n"))


# Labeled texts

TABLE = 'sentence\tid\tlabel\r\n "good" film \t1\tpos\r\nbad\t2\tneg\r\n'


def test_columns_are_given_by_name_or_by_number(write):
    examples = LabeledTexts(['"good" film', "bad"], ["pos", "neg"])
    path = write(TABLE)
    assert read_labeled(path, "sentence", "label") == examples
    assert read_labeled(path, "sentence", 3) == examples  # one name: there is a header
    numbered = read_labeled(path, 1, 3)
    assert numbered == (["sentence", *examples.texts], ["label", *examples.labels])
    assert read_labeled(path, text=3, label=1).texts == ["label", "pos", "neg"]


def test_blank_texts_are_dropped_and_counted(write, caplog):
    with caplog.at_level(logging.WARNING):
        assert read_labeled(write("a\t0\n\n \t1\n\t\nb\t1\n")) == (["a", "b"], ["0", "1"])
    assert len(caplog.records) == 1
    assert "dropped 3 of 5 examples whose text is blank" in caplog.text


@pytest.mark.parametrize(
    "content, columns, message",
    [
        ("a\t0\nb 1\n", (1, 2), "line 2: expected columns 1 and 2, received 1 of them: 'b 1'"),
        ("t\tl\na\t0\nb\n", ("t", "l"), "line 3: expected columns 1 and 2, received 1 of them"),
        ("a\t0\nb\t \n", (1, 2), "file, line 2: expected a label in column 2, .*Label the text"),
        (TABLE, ("text", "label"), "file, line 1: .*'text', received 'sentence', 'id', 'label'. C"),
        (
            "\t0\n\t1\n",
            (1, 2),
            "file: expected at least one complete .* received 2 whose text is b",
        ),
        ("a\t0\n", (1, 0), "label must be an integer of at least 1; received label=0"),
    ],
)
def test_an_invalid_line_of_a_table_of_labels_is_named(write, content, columns, message):
    with pytest.raises(ValueError, match=message):
        read_labeled(write(content), *columns)


# Plain text


@pytest.mark.parametrize("compress", [False, True])
def test_a_text_is_read_whole_with_newlines_as_its_only_line_ends(write, compress):
    assert read_text(write("\ufeffTo be,\r\n\r\n or\u2028not\n", compress)) == (
        "To be,\n\n or\u2028not\n"
    )


def test_a_text_is_checked_like_any_file(write, tmp_path):
    with pytest.raises(ValueError, match="file: expected lines of text, received an empty file"):
        read_text(write(""))
    (tmp_path / "latin").write_bytes(b"a\nna\xefve")
    with pytest.raises(
        ValueError, match="latin, line 2: expected UTF-8, received the invalid byte 0xef"
    ):
        read_text(tmp_path / "latin")
    with pytest.raises(FileNotFoundError, match="nowhere: no such file"):
        read_text(tmp_path / "nowhere")


# tensorflow-datasets


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A small dataset as tensorflow-datasets prepares it, without a network."""
    pytest.importorskip("tensorflow", reason="it reads with TensorFlow", exc_type=ImportError)
    import numpy as np
    import tensorflow_datasets as tfds

    class ToyAnnotations(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        FEATURES = tfds.features.FeaturesDict(
            {
                "tokens": tfds.features.Sequence(tfds.features.Text()),
                "upos": tfds.features.Sequence(tfds.features.ClassLabel(names=["NOUN", "X", "_"])),
                "xpos": tfds.features.Sequence(tfds.features.Text()),
                "sentence": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["negative", "positive"]),
                "idx": np.int64,
            }
        )

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=self.FEATURES)

        def _split_generators(self, _):
            return {name: self._generate_examples(name) for name in ("train", "dev", "test")}

        def _generate_examples(self, split):
            yield (
                0,
                {
                    "tokens": ["Tür", "zum", "zu"],
                    "upos": ["NOUN", "_", "X"],
                    "xpos": ["n", "y", "z"],
                    "sentence": f" {split} gut ",
                    "label": -1 if split == "test" else "positive",
                    "idx": 7,
                },
            )

    folder = tmp_path_factory.mktemp("tfds")
    ToyAnnotations(data_dir=folder).download_and_prepare()
    return {"name": "toy_annotations", "data_dir": folder}


def test_words_and_classes_of_a_dataset_are_read_without_its_contractions(prepared):
    sentences = TaggedSentences([["Tür", "zu"]], [["NOUN", "X"]])
    assert read_tagged_splits(**prepared) == (sentences,) * 3
    assert read_tagged_splits(**prepared, tags="xpos").valid.tags == [["n", "y", "z"]]


def test_labels_of_a_dataset_are_names_and_a_split_without_them_is_missing(prepared):
    assert read_labeled_splits(**prepared) == (
        (["train gut"], ["positive"]),
        (["dev gut"], ["positive"]),
        None,
    )


def test_plain_text_of_a_dataset_is_read_as_it_stands(prepared):
    assert read_text_splits(**prepared) == ([" train gut "], [" dev gut "], [" test gut "])


@pytest.mark.parametrize(
    "read, options, message",
    [
        ("tagged", {"tags": "label"}, "a list of texts or classes in the feature 'label', rec"),
        ("tagged", {"tokens": "words"}, "a list .*feature 'words', .*features tokens, .*Choose"),
        ("labeled", {"label": "idx"}, "a text or a class in the feature 'idx'"),
        ("text", {"text": "tokens"}, "a text or a class in the feature 'tokens'"),
    ],
)
def test_a_feature_that_does_not_fit_is_named(prepared, read, options, message):
    with pytest.raises(ValueError, match=f"toy_annotations: expected {message}"):
        getattr(datasets, f"read_{read}_splits")(**prepared, **options)


def test_the_text_feature_must_be_named_unless_there_is_one(monkeypatch):
    pytest.importorskip("tensorflow", reason="it reads with TensorFlow", exc_type=ImportError)
    import types

    import tensorflow_datasets as tfds

    text, label = tfds.features.Text(), tfds.features.ClassLabel(num_classes=2)
    for features, received in (
        ({"premise": text, "hypothesis": text, "label": label}, "premise, hypothesis among"),
        ({"label": label}, "none among the features label"),
    ):
        info = types.SimpleNamespace(features=features, splits={}, supervised_keys=None)
        dataset = datasets._TensorFlow(types.SimpleNamespace(info=info))
        monkeypatch.setattr(datasets, "_open", lambda *_, dataset=dataset: dataset)
        with pytest.raises(ValueError, match=f"two: expected one text feature, .*{received}"):
            read_labeled_splits("two")


@pytest.mark.parametrize("read", [read_tagged_splits, read_labeled_splits, read_text_splits])
def test_an_unprepared_or_unknown_dataset_is_an_error(prepared, tmp_path, read):
    with pytest.raises(FileNotFoundError, match=r"Allow the download \(--download\), or copy"):
        read("toy_annotations", data_dir=tmp_path)
    with pytest.raises(ValueError, match="no_such_set: expected a dataset"):
        read("no_such_set", data_dir=tmp_path)


@pytest.mark.parametrize("read", [read_tagged_splits, read_labeled_splits, read_text_splits])
def test_without_tensorflow_the_cure_is_to_install_it_or_to_use_files(monkeypatch, read):
    monkeypatch.setitem(__import__("sys").modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match="imdb: datasets need TensorFlow .*texts to files"):
        read("imdb")
