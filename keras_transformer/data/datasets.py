"""Datasets of tensorflow-datasets and of Hugging Face: translations, tags, labels, plain text.

"ted_hrlr_translate/pt_to_en" is a name of tensorflow-datasets, which needs TensorFlow on every
backend. What begins with "hf:" is read by the package `datasets`: "hf:FOLDER", a folder that its
`save_to_disk` wrote, or a dataset of the Hugging Face Hub, "hf:NAME" or "hf:NAME:CONFIGURATION".

Every reader returns `Splits`, with None for a missing validation or test split, and raises
`ImportError` if a library is not installed, `FileNotFoundError` if the dataset is not on this
machine and `download` is False, and `ValueError` if there is no such dataset, training split or
feature.
"""

import logging
import os
from collections.abc import Iterator

from ..checks import check, first_line, imported, unexpected
from .records import (
    Examples,
    LabeledTexts,
    Splits,
    TaggedSentences,
    collect,
    collect_complete,
    collect_texts,
)

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
        name: str, as `tfds.load` takes it, or see the module; or a folder for
            `tfds.TranslateFolder`, which contains files such as en.train.txt and de.train.txt.
        source, target: str, the languages to translate from and into; None: as defined by the
            dataset, or the only two in alphabetical order.
        data_dir: Path where tensorflow-datasets stores prepared datasets; None: its default.
        download: bool, whether a missing dataset may be downloaded.

    Returns:
        Splits of Examples.

    Raises:
        ValueError: There is no such language, or no complete pair.
    """
    dataset = _open(name, data_dir, download)
    texts = [_reader(dataset, name, key) for key in _languages(dataset, name, source, target)]

    def read(rows, split):
        pairs = (tuple(text(row).strip() for text in texts) for row in rows)
        return collect_complete(Examples, pairs, split, drop=not split.endswith(", test"))

    return _splits(dataset, name, read)


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
    dataset = _open(name, data_dir, download)
    words_of = _reader(dataset, name, tokens, many=True)
    tags_of = _reader(dataset, name, tags, many=True)

    def read(rows, split):
        sentences = []
        for row in rows:
            if any(
                side is None or any(x is None for x in side) for side in (row[tokens], row[tags])
            ):
                expected = f"a list of words in {tokens!r}, and a tag for each in {tags!r}"
                received = f"None in {row[tokens]!r:.60} or {row[tags]!r:.60}"
                raise unexpected(split, expected, received, "Leave that sentence out.")
            pairs = zip(words_of(row), tags_of(row), strict=True)
            tagged = [pair for pair in pairs if pair[1] != "_"]
            if tagged:
                sentences.append(tuple(map(list, zip(*tagged, strict=True))))
        return collect(TaggedSentences, sentences) if sentences else None

    return _splits(dataset, name, read)


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
    dataset = _open(name, data_dir, download)
    text_of = _reader(dataset, name, text or _only_text(dataset, name))
    label_of = _reader(dataset, name, label)

    def read(rows, split):
        known = [(row, row[label] not in (-1, None)) for row in rows]
        pairs = [(text_of(row).strip(), label_of(row)) for row, is_known in known if is_known]
        if 0 < len(pairs) < len(known):
            logging.getLogger(__name__).warning(
                f"{split}: dropped {len(known) - len(pairs)} of {len(known)} texts without a label."
            )
        return collect_complete(LabeledTexts, pairs, split) if pairs else None

    return _splits(dataset, name, read)


def read_text_splits(
    name: str, text: str | None = None, data_dir: str | None = None, download: bool = False
) -> Splits:
    """A dataset of plain text: "tiny_shakespeare", which is one long text per split.

    The arguments are those of `read_labeled_splits`.

    Returns:
        Splits of lists of str, without blank texts, whose number is logged.
    """
    dataset = _open(name, data_dir, download)
    text_of = _reader(dataset, name, text or _only_text(dataset, name))
    return _splits(dataset, name, lambda rows, split: collect_texts(map(text_of, rows), split))


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
    dataset = _open(name, data_dir, download)
    one, other = (_reader(dataset, name, key) for key in _languages(dataset, name, source, target))
    for row in _rows(dataset, name, split):
        yield one(row).strip(), other(row).strip()


def iterate_text_split(
    name: str,
    split: str = "train",
    text: str | None = None,
    data_dir: str | None = None,
    download: bool = False,
) -> Iterator[str]:
    """The texts of one split of a dataset one by one; see `iterate_split`."""
    dataset = _open(name, data_dir, download)
    text_of = _reader(dataset, name, text or _only_text(dataset, name))
    for row in _rows(dataset, name, split):
        yield text_of(row)


class _HuggingFace:
    """A dataset of Hugging Face.

    Args:
        name: str, see the module.
        download: bool, whether it may be downloaded.

    Attributes:
        splits: dict from the name of each split to its rows.
        features: dict from the name of each feature to its type.
        languages: None, or the names of source and target.
    """

    languages = None

    def __init__(self, name, download):
        self._library = imported("datasets", name)
        place = name.removeprefix("hf:")
        if not (os.path.isdir(place) or download):
            raise FileNotFoundError(
                f"{name}: {place} is not a folder. Allow the download from the Hugging Face Hub "
                "(--download), or name a folder that save_to_disk wrote."
            )
        try:
            if os.path.isdir(place):
                found = self._library.load_from_disk(place)
            else:
                found = self._library.load_dataset(*place.split(":"))
        except (OSError, ValueError) as error:
            expected = "a folder that save_to_disk wrote, or a dataset of the Hugging Face Hub"
            raise unexpected(name, expected, first_line(error), "Check the name.") from None
        found = found if isinstance(found, dict) else {"train": found}
        self.splits = {split: _flat(rows) for split, rows in found.items()}
        self.features = next(iter(self.splits.values())).features

    def rows(self, split):
        batches = self.splits[split].iter(1000)
        rows = ((batch, row) for batch in batches for row in zip(*batch.values(), strict=True))
        return (dict(zip(names, row, strict=True)) for names, row in rows)

    def decoder(self, feature):
        if isinstance(feature, self._library.ClassLabel):
            return feature.int2str
        is_text = getattr(feature, "dtype", None) in ("string", "large_string")
        return _text if is_text else None


def _flat(rows):
    """The rows with the features of a feature as "a.b", except the languages of a translation."""
    rows = rows.flatten()
    names = {name: name.removeprefix("translation.") for name in rows.column_names}
    return rows.rename_columns(names)


def _text(value):
    return value or ""  # None for a missing one


class _TensorFlow:
    """A dataset of tensorflow-datasets: a `tfds.core.DatasetBuilder`, see `_HuggingFace`."""

    def __init__(self, builder):
        info, self._builder = builder.info, builder
        self.splits, self.features = info.splits, dict(info.features.items())
        self.languages = info.supervised_keys

    def rows(self, split):
        import tensorflow_datasets as tfds

        # In order, one file after the other: a second pass has the same rows.
        return tfds.as_numpy(self._builder.as_dataset(split=split, shuffle_files=False))

    def decoder(self, feature):
        import tensorflow_datasets as tfds

        if isinstance(feature, tfds.features.ClassLabel):
            return feature.int2str
        return bytes.decode if isinstance(feature, tfds.features.Text) else None


def _open(name, data_dir, download):
    """The dataset of Hugging Face or of tensorflow-datasets, or a folder for the latter."""
    if name.startswith("hf:"):
        return _HuggingFace(name, download)
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
        return _TensorFlow(builder)
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        expected = "a dataset that tfds.list_builders() contains, or a folder"
        raise unexpected(name, expected, "neither", "Check the name.") from None
    if not builder.data_path.exists():
        if not download:
            raise FileNotFoundError(
                f"{name} is not in {builder.data_path}: expected the files that "
                "tensorflow-datasets prepares. Allow the download (--download), or copy that "
                "folder there."
            )
        builder.download_and_prepare()
    return _TensorFlow(builder)


def _splits(dataset, name, read):
    """`Splits` of the results of `read`, a function of the rows and the name of a split."""
    known = list(dataset.splits)
    if "train" not in known:
        raise unexpected(name, "a split named train", ", ".join(known), "Choose another dataset.")

    def first(*names):
        found = (split for split in names if split in known)
        return next((read(_rows(dataset, name, each), f"{name}, {each}") for each in found), None)

    return Splits(first("train"), first(*VALIDATION_NAMES), first("test"))


def _rows(dataset, name, split):
    """The rows of one split, as dicts of values."""
    try:
        return dataset.rows(split)
    except (ValueError, KeyError):
        expected = f"a split among {', '.join(dataset.splits)}, or a part of one"
        raise unexpected(name, expected, repr(split), "Choose one of these.") from None


def _reader(dataset, name, key, many=False):
    """The function from a row to the text or the name of the class in feature `key`."""
    feature = dataset.features.get(key)
    decode = dataset.decoder(getattr(feature, "feature", None) if many else feature)
    if decode is None:
        expected = "a list of texts or classes" if many else "a text or a class"
        received = f"the features {', '.join(dataset.features)}"
        raise unexpected(name, f"{expected} in the feature {key!r}", received, "Choose another.")
    return lambda row: [decode(value) for value in row[key]] if many else decode(row[key])


def _texts(dataset):
    """The names of the features with texts."""
    decoders = {key: dataset.decoder(feature) for key, feature in dataset.features.items()}
    return [key for key, decode in decoders.items() if decode in (_text, bytes.decode)]


def _only_text(dataset, name):
    texts = _texts(dataset)
    if len(texts) != 1:
        received = f"{', '.join(texts) or 'none'} among the features {', '.join(dataset.features)}"
        raise unexpected(name, "one text feature", received, "Name the one to read.")
    return texts[0]


def _languages(dataset, name, source, target):
    """The keys of the two sides."""
    languages = _texts(dataset)
    if len(languages) < 2:
        received, cure = f"the features {[*dataset.features]}", "Choose a translation dataset."
        raise unexpected(name, "text in two languages", received, cure)
    given = (source, target)
    if given == (None, None) and dataset.languages:
        return dataset.languages
    differ = source is None or source != target
    check(differ, "Source and target must be two languages", source=source, target=target)
    others = sorted({*languages} - {*given})
    if {*given} <= {None, *languages} and len(others) > given.count(None) > 0:
        received, cure = ", ".join(sorted(languages)), "Name both source and target."
        raise unexpected(name, "text in two languages, or their names", received, cure)
    remaining = iter(others)
    return tuple(next(remaining) if side is None else side for side in given)
