"""Translation sets of tensorflow-datasets. They need TensorFlow, on every backend."""

import os

from .examples import Splits, complete_pairs


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
    return _read(*_opened(name, source, target, data_dir, download), split)


def read_splits(name, source=None, target=None, data_dir=None, download=False):
    """All splits of a translation set; its validation split may be called valid, val or dev.

    Args: as `read_dataset`.

    Returns:
        Splits, with None for a validation or test set that it has not.

    Raises: as `read_dataset`.
    """
    builder, *rest = _opened(name, source, target, data_dir, download)
    known = list(builder.info.splits)
    valid = next((split for split in ("validation", "valid", "val", "dev") if split in known), None)
    test = "test" if "test" in known else None
    splits = ("train", valid, test)
    return Splits(*(split and _read(builder, *rest, split) for split in splits))


def _opened(name, source, target, data_dir, download):
    """The set and the keys of its two sides."""
    try:
        import tensorflow  # noqa: F401
        import tensorflow_datasets as tfds
    except ImportError:
        raise ImportError(
            f"{name}: data sets need TensorFlow and tensorflow-datasets; install them, or write "
            "the pairs to files."
        ) from None
    builder = _builder(tfds, name, data_dir, download)
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
    return builder, name, wanted


def _read(builder, name, languages, split):
    import tensorflow_datasets as tfds

    known = list(builder.info.splits)
    if split.partition("[")[0] not in known:
        raise ValueError(f"{name}: expected a split of {', '.join(known)}; received {split}.")
    rows = tfds.as_numpy(builder.as_dataset(split=split))
    pairs = (tuple(row[language].decode().strip() for language in languages) for row in rows)
    return complete_pairs(pairs, f"{name}, {split}")


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
