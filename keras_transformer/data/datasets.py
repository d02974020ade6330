"""Datasets of tensorflow-datasets: translations, tagged sentences, labeled texts, plain text.

They need TensorFlow, on every backend. Every reader returns `Splits`, with None for a missing
validation or test split, and raises `ImportError` if TensorFlow or tensorflow-datasets is not
installed, `FileNotFoundError` if the dataset has not been prepared and `download` is False, and
`ValueError` if there is no such dataset, training split or feature.
"""

import logging
import os
from collections.abc import Iterator

from ..checks import check, unexpected
from .records import Examples, LabeledTexts, Splits, TaggedSentences, collect, collect_complete

VALIDATION_NAMES = ("validation", "valid", "val", "dev")


def read_splits(
    name: str,
    source: str | None = None,
    target: str | None = None,
    data_dir: str | None = None,
    download: bool = False,
) -> Splits:
    """A translation dataset: "ted_hrlr_translate/pt_to_en", or a folder of your own.

    Args:
        name: str, as `tfds.load` takes it; or a folder for `tfds.TranslateFolder`, which contains
            files such as en.train.txt and de.train.txt.
        source, target: str, the languages to translate from and into; None: as defined by the
            dataset, or those of the folder in alphabetical order.
        data_dir: Path where tensorflow-datasets stores prepared datasets; None: its default.
        download: bool, whether a missing dataset may be downloaded.

    Returns:
        Splits of Examples.

    Raises:
        ValueError: There is no such language, or no complete pair.
    """
    builder = _open(name, data_dir, download)
    texts = [_reader(builder, name, key) for key in _languages(builder, name, source, target)]

    def read(rows, split):
        pairs = (tuple(text(row).strip() for text in texts) for row in rows)
        return collect_complete(Examples, pairs, split, drop=not split.endswith(", test"))

    return _splits(builder, name, read)


def read_tagged_splits(
    name: str,
    tokens: str = "tokens",
    tags: str = "upos",
    data_dir: str | None = None,
    download: bool = False,
) -> Splits:
    """A dataset with a tag for each word: "universal_dependencies/en_ewt".

    A word whose tag is "_" is dropped: that dataset marks a contraction ("don't") in this way, and
    its parts follow it, each with a tag of its own.

    Args:
        name: str, as `tfds.load` takes it.
        tokens: str, the feature that contains the words.
        tags: str, the feature that contains a class or a text for each of them.
        data_dir, download: see `read_splits`.

    Returns:
        Splits of TaggedSentences.
    """
    builder = _open(name, data_dir, download)
    words_of = _reader(builder, name, tokens, many=True)
    tags_of = _reader(builder, name, tags, many=True)

    def read(rows, split):
        sentences = []
        for row in rows:
            pairs = zip(words_of(row), tags_of(row), strict=True)
            tagged = [pair for pair in pairs if pair[1] != "_"]
            if tagged:
                sentences.append(tuple(map(list, zip(*tagged, strict=True))))
        return collect(TaggedSentences, sentences) if sentences else None

    return _splits(builder, name, read)


def read_labeled_splits(
    name: str,
    text: str | None = None,
    label: str = "label",
    data_dir: str | None = None,
    download: bool = False,
) -> Splits:
    """A dataset of texts in classes: "glue/sst2", "imdb_reviews".

    Args:
        name: str, as `tfds.load` takes it.
        text: str, the feature that contains the text; None: the only text feature.
        label: str, the feature that contains the class.
        data_dir, download: see `read_splits`.

    Returns:
        Splits of LabeledTexts; a split whose labels are secret, as in GLUE's test sets, is None.
    """
    builder = _open(name, data_dir, download)
    text_of = _reader(builder, name, text or _only_text(builder, name))
    label_of = _reader(builder, name, label)

    def read(rows, split):
        known = [(row, row[label] != -1) for row in rows]
        pairs = [(text_of(row).strip(), label_of(row)) for row, is_known in known if is_known]
        if 0 < len(pairs) < len(known):
            logging.getLogger(__name__).warning(
                f"{split}: dropped {len(known) - len(pairs)} of {len(known)} texts without a label."
            )
        return collect_complete(LabeledTexts, pairs, split) if pairs else None

    return _splits(builder, name, read)


def read_text_splits(
    name: str, text: str | None = None, data_dir: str | None = None, download: bool = False
) -> Splits:
    """A dataset of plain text: "tiny_shakespeare", which is one long text per split.

    The arguments are those of `read_labeled_splits`.

    Returns:
        Splits of lists of str.
    """
    builder = _open(name, data_dir, download)
    text_of = _reader(builder, name, text or _only_text(builder, name))
    return _splits(builder, name, lambda rows, split: [text_of(row) for row in rows])


def iterate_split(
    name: str,
    split: str = "train",
    source: str | None = None,
    target: str | None = None,
    data_dir: str | None = None,
    download: bool = False,
) -> Iterator[tuple[str, str]]:
    """The pairs of one split of a translation dataset one by one, blank ones included.

    Args:
        name, source, target, data_dir, download: see `read_splits`.
        split: str, as `tfds.load` takes it: "train", "train[:90%]", ...

    Yields:
        source, target: str.

    Raises:
        ValueError: There is no such split or language.
    """
    builder = _open(name, data_dir, download)
    one, other = (_reader(builder, name, key) for key in _languages(builder, name, source, target))
    for row in _rows(builder, name, split):
        yield one(row).strip(), other(row).strip()


def iterate_text_split(
    name: str,
    split: str = "train",
    text: str | None = None,
    data_dir: str | None = None,
    download: bool = False,
) -> Iterator[str]:
    """The texts of one split of a dataset one by one; see `iterate_split`."""
    builder = _open(name, data_dir, download)
    text_of = _reader(builder, name, text or _only_text(builder, name))
    for row in _rows(builder, name, split):
        yield text_of(row)


def _open(name, data_dir, download):
    """The `tfds.core.DatasetBuilder` of a prepared dataset or of a folder."""
    try:
        import tensorflow  # noqa: F401
        import tensorflow_datasets as tfds
    except ImportError:
        raise ImportError(
            f"{name}: datasets need TensorFlow and tensorflow-datasets; install them, or write "
            "the texts to files."
        ) from None
    if os.path.isdir(name):
        builder = tfds.TranslateFolder(name)
        if not builder.info.splits:
            expected = "files such as en.train.txt and de.train.txt"
            cure = "Name them language.split.txt, with translations in the same line."
            raise unexpected(name, expected, "none", cure)
        return builder
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        expected = "a dataset that tfds.list_builders() contains, or a folder"
        raise unexpected(name, expected, "neither", "Check the name.") from None
    if not builder.data_path.exists():
        if not download:
            raise FileNotFoundError(
                f"{name} is not in {builder.data_path}: expected the files that "
                "tensorflow-datasets prepares. Allow the download, or copy that folder there."
            )
        builder.download_and_prepare()
    return builder


def _splits(builder, name, read):
    """`Splits` of the results of `read`, a function of the rows and the name of a split."""
    known = list(builder.info.splits)
    if "train" not in known:
        raise unexpected(name, "a split named train", ", ".join(known), "Choose another dataset.")

    def first(*names):
        found = (split for split in names if split in known)
        return next((read(_rows(builder, name, each), f"{name}, {each}") for each in found), None)

    return Splits(first("train"), first(*VALIDATION_NAMES), first("test"))


def _rows(builder, name, split):
    """The rows of one split, as dicts of NumPy values."""
    import tensorflow_datasets as tfds

    try:
        # In order, one file after the other: a second pass has the same rows.
        dataset = builder.as_dataset(split=split, shuffle_files=False)
    except ValueError:
        expected = f"a split among {', '.join(builder.info.splits)}, or a part of one"
        raise unexpected(name, expected, repr(split), "Choose one of these.") from None
    return tfds.as_numpy(dataset)


def _reader(builder, name, key, many=False):
    """The function from a row to the text or the name of the class in feature `key`."""
    import tensorflow_datasets as tfds

    features = builder.info.features
    feature = dict(features.items()).get(key)
    if many:
        feature = getattr(feature, "feature", None)
    if isinstance(feature, tfds.features.ClassLabel):
        decode = feature.int2str
    elif isinstance(feature, tfds.features.Text):
        decode = bytes.decode
    else:
        expected = "a list of texts or classes" if many else "a text or a class"
        received = f"the features {', '.join(features)}"
        raise unexpected(name, f"{expected} in the feature {key!r}", received, "Choose another.")
    return lambda row: [decode(value) for value in row[key]] if many else decode(row[key])


def _only_text(builder, name):
    import tensorflow_datasets as tfds

    features = builder.info.features
    texts = [key for key, value in features.items() if isinstance(value, tfds.features.Text)]
    if len(texts) != 1:
        received = f"{', '.join(texts) or 'none'} among the features {', '.join(features)}"
        raise unexpected(name, "one text feature", received, "Name the one to read.")
    return texts[0]


def _languages(builder, name, source, target):
    """The keys of the two sides."""
    languages = list(builder.info.features)
    if len(languages) < 2:
        received, cure = f"the features {languages}", "Choose a translation dataset."
        raise unexpected(name, "text in two languages", received, cure)
    if source is None and target is None:
        return builder.info.supervised_keys or sorted(languages)[:2]
    check(source != target, "Source and target must be two languages", source=source, target=target)
    others = [language for language in languages if language not in (source, target)]
    return source or others[0], target or others[0]
