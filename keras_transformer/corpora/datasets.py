"""Sets of tensorflow-datasets: translations, tagged sentences, labelled texts, plain text.

They need TensorFlow, on every backend.
"""

import os

from .examples import Splits, TaggedSentences, complete_pairs, labelled


def read_dataset(name, split, source=None, target=None, data_dir=None, download=False):
    """One split of a translation set: "ted_hrlr_translate/pt_to_en", or a folder of your own.

    Args:
        name: str, as `tfds.load` takes it; or a folder for `tfds.TranslateFolder`, which holds
            files such as en.train.txt and de.train.txt.
        split: str, "train", "validation", "test", or as the set calls it; "train[:1%]" where
            tensorflow-datasets can.
        source, target: str, the languages to translate from and into; None: as the set has them,
            or those of the folder in alphabetical order.
        data_dir: Path where tensorflow-datasets keeps what it prepared; None: its default.
        download: bool, whether a set that is not there may be downloaded.

    Returns:
        Examples.

    Raises:
        ImportError: TensorFlow or tensorflow-datasets is not installed.
        FileNotFoundError: The set has not been prepared, and `download` is False.
        ValueError: There is no such set, split or language, or no pair is left.
    """
    builder, languages = _opened_pair(name, source, target, data_dir, download)
    return _read_pairs(builder, name, languages, split)


def read_splits(name, source=None, target=None, data_dir=None, download=False):
    """All splits of a translation set; its validation split may be called valid, val or dev.

    Args: as `read_dataset`.

    Returns:
        Splits, with None for a validation or test set that it has not.

    Raises: as `read_dataset`.
    """
    builder, languages = _opened_pair(name, source, target, data_dir, download)
    return _splits(builder, lambda split: _read_pairs(builder, name, languages, split))


def read_tagged_splits(name, tokens="tokens", tags="upos", data_dir=None, download=False):
    """All splits of a set with a tag for each word: "universal_dependencies/en_ewt".

    A word whose tag is "_" is dropped: so that set marks a contraction ("don't") whose parts
    follow it, each with a tag of its own.

    Args:
        name: str, as `tfds.load` takes it.
        tokens: str, the feature that holds the words.
        tags: str, the feature that holds a class or a text for each of them.
        data_dir, download: as `read_dataset`.

    Returns:
        Splits of TaggedSentences, with None for a validation or test set that it has not.

    Raises: as `read_dataset`; ValueError also if a feature is not there or holds something else.
    """
    builder = _opened(name, data_dir, download)
    words_of = _reader(builder, name, tokens, many=True)
    tags_of = _reader(builder, name, tags, many=True)

    def read(split):
        sentences = []
        for row in _rows(builder, name, split):
            pairs = zip(words_of(row), tags_of(row), strict=True)
            sentences.append([pair for pair in pairs if pair[1] != "_"])
        columns = [list(map(list, zip(*pairs, strict=True))) for pairs in sentences if pairs]
        return TaggedSentences(*map(list, zip(*columns, strict=True))) if columns else None

    return _splits(builder, read)


def read_labelled_splits(name, text=None, label="label", data_dir=None, download=False):
    """All splits of a set of texts in classes: "glue/sst2", "imdb_reviews".

    Args:
        name: str, as `tfds.load` takes it.
        text: str, the feature that holds the text; None: the only one that does.
        label: str, the feature that holds the class.
        data_dir, download: as `read_dataset`.

    Returns:
        Splits of LabelledTexts, with None for a validation or test set that it has not, and for
        one whose labels are kept secret, as GLUE's test sets are.

    Raises: as `read_tagged_splits`.
    """
    builder = _opened(name, data_dir, download)
    text_of = _reader(builder, name, text or _only_text(builder, name))
    label_of = _reader(builder, name, label)

    def read(split):
        pairs = [
            (text_of(row).strip(), label_of(row))
            for row in _rows(builder, name, split)
            if row[label] != -1
        ]
        return labelled(pairs, f"{name}, {split}") if pairs else None

    return _splits(builder, read)


def read_text_splits(name, text=None, data_dir=None, download=False):
    """All splits of a set of plain text: "tiny_shakespeare", which is one long text a split.

    Args: as `read_labelled_splits`.

    Returns:
        Splits of lists of str, with None for a validation or test set that it has not.

    Raises: as `read_tagged_splits`.
    """
    builder = _opened(name, data_dir, download)
    text_of = _reader(builder, name, text or _only_text(builder, name))
    return _splits(builder, lambda split: [text_of(row) for row in _rows(builder, name, split)])


def _splits(builder, read):
    """What `read` makes of each split; its validation split may be called valid, val or dev."""
    known = list(builder.info.splits)
    valid = next((split for split in ("validation", "valid", "val", "dev") if split in known), None)
    test = "test" if "test" in known else None
    return Splits(*(split and read(split) for split in ("train", valid, test)))


def _rows(builder, name, split):
    import tensorflow_datasets as tfds

    known = list(builder.info.splits)
    if split.partition("[")[0] not in known:
        raise ValueError(f"{name}: expected a split of {', '.join(known)}; received {split}.")
    return tfds.as_numpy(builder.as_dataset(split=split))


def _read_pairs(builder, name, languages, split):
    rows = _rows(builder, name, split)
    pairs = (tuple(row[language].decode().strip() for language in languages) for row in rows)
    return complete_pairs(pairs, f"{name}, {split}")


def _reader(builder, name, key, many=False):
    """The function from a row to the text or the name of the class in feature `key`."""
    import tensorflow_datasets as tfds

    features = builder.info.features
    feature = features[key] if key in features else None
    if many:
        feature = getattr(feature, "feature", None)
    if isinstance(feature, tfds.features.ClassLabel):
        name_of = feature.int2str
    elif isinstance(feature, tfds.features.Text):
        name_of = bytes.decode
    else:
        raise ValueError(
            f"{name}: expected {'a list of texts or classes' if many else 'a text or a class'} in "
            f"the feature {key!r}; received the features {', '.join(features)}. Name another."
        )
    return lambda row: [name_of(value) for value in row[key]] if many else name_of(row[key])


def _only_text(builder, name):
    import tensorflow_datasets as tfds

    features = builder.info.features
    texts = [key for key, value in features.items() if isinstance(value, tfds.features.Text)]
    if len(texts) != 1:
        raise ValueError(
            f"{name}: expected one feature of text; received {', '.join(texts) or 'none'} among "
            f"the features {', '.join(features)}. Name the one to read."
        )
    return texts[0]


def _opened(name, data_dir, download):
    try:
        import tensorflow  # noqa: F401
        import tensorflow_datasets as tfds
    except ImportError:
        raise ImportError(
            f"{name}: data sets need TensorFlow and tensorflow-datasets; install them, or write "
            "the texts to files."
        ) from None
    return _builder(tfds, name, data_dir, download)


def _opened_pair(name, source, target, data_dir, download):
    """The set and the keys of its two sides."""
    builder = _opened(name, data_dir, download)
    languages = list(builder.info.features)
    if len(languages) < 2:
        raise ValueError(
            f"{name}: expected text in two languages; received the features {languages}. Choose a "
            "translation set."
        )
    wanted = _languages(builder, languages, source, target)
    unknown = [language for language in wanted if language not in languages]
    if unknown:
        raise ValueError(
            f"{name}: expected a language of {', '.join(languages)}; received {unknown[0]}."
        )
    return builder, wanted


def _builder(tfds, name, data_dir, download):
    if os.path.isdir(name):
        builder = tfds.TranslateFolder(name)
        if not builder.info.splits:
            raise ValueError(
                f"{name}: expected files such as en.train.txt and de.train.txt, received none. "
                "Name them language.split.txt, line n of each with the same meaning."
            )
        return builder
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        raise ValueError(
            f"{name}: expected a data set that tfds.list_builders() knows, or a folder; received "
            "neither. Check the name."
        ) from None
    if not builder.data_path.exists():
        if not download:
            raise FileNotFoundError(
                f"{name} is not in {builder.data_path}: expected the files that "
                "tensorflow-datasets prepares. Allow the download, or copy that folder there."
            )
        builder.download_and_prepare()
    return builder


def _languages(builder, languages, source, target):
    """The keys of the two sides."""
    first, second = builder.info.supervised_keys or (sorted(languages) * 2)[:2]
    if source is None and target is None:
        return first, second
    others = [language for language in languages if language not in (source, target)]
    return source or others[0], target or others[0]
