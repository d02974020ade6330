import bz2
import datetime
import gzip
import json
import logging
import lzma
import os
import pathlib
import re
import threading

import pytest

from keras_transformer import data
from keras_transformer.data import (
    DATE_FORMS,
    Examples,
    clean,
    dates,
    find_line,
    iterate_files,
    read_files,
    read_pairs,
    read_splits,
    train_valid_split,
    write_date,
)
from keras_transformer.data.cleaning import PRESET, Cleaner

# April 22, 2019, a Monday, in every form, written out by hand.
WRITTEN = {
    "April 22, 2019",
    "April 22nd, 2019",
    "April 22 2019",
    "22 April 2019",
    "22nd of April 2019",
    "the 22nd of April, 2019",
    "Monday, April 22, 2019",
    "Monday 22 April 2019",
    "Monday the 22nd of April 2019",
    "Apr 22, 2019",
    "22 Apr 2019",
    "Mon, 22 Apr 2019",
    "APRIL 22, 2019",
    "22-APR-2019",
    "2019, April 22",
    "2019-04-22",
    "2019/04/22",
    "2019.04.22",
    "04/22/2019 (month/day/year)",
    "22/04/2019 (day/month/year)",
    "22.4.2019 (day.month.year)",
}
SAMPLE = [datetime.date.fromordinal(n) for n in range(364_878, 3_652_060, 1009)] + [
    datetime.date(year, month, day)  # where day and month could be mistaken for each other
    for year in (1000, 1011, 2012, 9999)
    for month in range(1, 13)
    for day in range(1, 13)
]


def parse(text):
    """ISO date and weekday (0 = Monday, or None) of a date in any form, by independent rules."""
    text = text.lower()
    weekday = re.match("mon|tue|wed|thu|fri|sat|sun", text)
    weekday = weekday and "mon tue wed thu fri sat sun".split().index(weekday[0])
    text = re.sub("^(mon|tue|wed|thu|fri|sat|sun)[a-z]*", "", text)
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    stated = re.search(r"\((\w+).(\w+).(\w+)\)", text)
    if stated:
        part = dict(zip(stated.groups(), numbers, strict=True))
    elif named := re.search("jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec", text):
        day, year = sorted(numbers)
        month = "jan feb mar apr may jun jul aug sep oct nov dec".split().index(named[0]) + 1
        part = {"year": year, "month": month, "day": day}
    else:
        part = dict(zip(("year", "month", "day"), numbers, strict=True))
    return f"{part['year']:04}-{part['month']:02}-{part['day']:02}", weekday


def zeller(iso):
    """Day of the week, 0 = Monday, by Zeller's congruence for the Gregorian calendar."""
    year, month, day = map(int, iso.split("-"))
    if month < 3:
        year, month = year - 1, month + 12
    return (day + 13 * (month + 1) // 5 + year + year // 4 - year // 100 + year // 400 + 5) % 7


# Dates


def test_one_date_in_every_form():
    written = [write_date(datetime.date(2019, 4, 22), form) for form in DATE_FORMS]
    assert set(written) == WRITTEN
    assert len(written) == len(WRITTEN)


def test_no_written_date_can_mean_two_days():
    meaning = {}
    for date in SAMPLE:
        for form in DATE_FORMS:
            source = write_date(date, form)
            assert meaning.setdefault(source, date) == date, source
    assert len(meaning) > 20 * len(SAMPLE)  # May is short and long at once, so not quite 21


@pytest.mark.parametrize("form", DATE_FORMS)
def test_an_independent_reader_understands_every_form(form):
    for date in SAMPLE:
        iso, weekday = parse(write_date(date, form))
        assert iso == date.isoformat()
        assert weekday == (zeller(iso) if "weekday" in form else None)


def test_ordinals_are_english():
    expected = (
        "1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th 11th 12th 13th 14th 15th 16th 17th 18th 19th "
        "20th 21st 22nd 23rd 24th 25th 26th 27th 28th 29th 30th 31st"
    ).split()
    days = [datetime.date(2000, 1, day) for day in range(1, 32)]
    assert [write_date(day, "{ordinal}") for day in days] == expected


def test_splits_of_dates_have_the_requested_sizes_and_true_targets():
    splits = dates(300, 20, 10, seed=1)
    assert [len(examples.source) for examples in splits] == [300, 20, 10]
    for examples in splits:
        assert examples.target == [parse(source)[0] for source in examples.source]


def test_every_form_is_drawn():
    examples = dates(2000, 0, 0).train
    used = {
        form
        for source, target in zip(*examples, strict=True)
        for form in DATE_FORMS
        if write_date(datetime.date.fromisoformat(target), form) == source
    }
    assert used == set(DATE_FORMS)


def test_no_date_occurs_twice_nor_in_two_splits():
    splits = dates(20_000, 2_000, 2_000)
    targets = [target for examples in splits for target in examples.target]
    assert len(targets) == len(set(targets)) == 24_000
    assert min(targets) >= "1000-01-01"
    assert max(targets) <= "9999-12-31"


def test_the_seed_decides_the_dates():
    assert dates(50, 5, 5, seed=3) == dates(50, 5, 5, seed=3)
    assert dates(50, 5, 5, seed=3) != dates(50, 5, 5, seed=4)


@pytest.mark.parametrize("sizes", [(3_287_183, 0, 0), (10, -1, 10)])
def test_more_dates_than_there_are_is_an_error(sizes):
    days = (datetime.date(9999, 12, 31) - datetime.date(1000, 1, 1)).days + 1
    with pytest.raises(ValueError, match=f"at most {days} .*received .*{sizes[0]}.*Choose fewer"):
        dates(*sizes)


# Files


def test_examples_of_several_files_are_one_record():
    pairs = [Examples(["a"], ["A"]), Examples(["b", "c"], ["B", "C"])]
    assert data.concatenate(pairs) == (["a", "b", "c"], ["A", "B", "C"])
    assert type(data.concatenate(pairs)) is Examples
    assert data.concatenate([["a"], [], ["b"]]) == ["a", "b"]


def test_line_n_of_one_file_translates_line_n_of_the_other(write):
    examples = read_files(write("en", "a b\nc\n"), write("de", "A B\nC\n"))
    assert examples.source == ["a b", "c"]
    assert examples.target == ["A B", "C"]


def test_columns_after_the_second_are_ignored_unless_they_are_named(write):
    path = write("p.tsv", "a b\tA B\tCC-BY\tx\nc\tC\t\t\n")
    assert read_pairs(path) == (["a b", "c"], ["A B", "C"])
    assert read_pairs(path, 2, 1) == (["A B", "C"], ["a b", "c"])
    assert read_pairs(write("q.tsv", "1\ta\t2\tA\n\n"), 4, 2) == (["A"], ["a"])


@pytest.mark.parametrize(
    "content",
    [
        b"a\tA\nb\tB\n",
        b"a\tA\nb\tB",  # no last newline
        b"\xef\xbb\xbfa\tA\nb\tB\n",  # byte-order mark
        b"a\tA\r\nb\tB\r\n",  # Windows
        b" a \t A\nb\t\xe3\x80\x80B \n",  # blanks, one of them ideographic
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_the_same_text_is_read_however_it_was_written(write, content, compress):
    assert read_pairs(write("any.name", content, compress)) == (["a", "b"], ["A", "B"])


def test_gzip_is_recognized_by_content_not_by_name(write):
    plain, packed = write("plain.gz", "a\n"), write("packed.txt", "A\n", compress=True)
    assert read_files(plain, packed) == (["a"], ["A"])


@pytest.mark.parametrize("mark", "\u2028 \u2029 \u0085 \x0b \x0c \x1c \x1d \x1e \r".split(" "))
def test_only_a_newline_ends_a_line(write, mark):
    examples = read_files(write("en", f"a{mark}b\nc\n"), write("de", "A\nC\n"))
    assert examples == ([f"a{mark}b", "c"], ["A", "C"])


def test_a_pair_blank_on_one_side_is_dropped_on_both_and_counted(write, caplog):
    source, target = write("en", "a\n\nc\n \ne\n"), write("de", "A\nB\n\n\nE\n")
    with caplog.at_level(logging.WARNING):
        assert read_files(source, target) == (["a", "e"], ["A", "E"])
    assert len(caplog.records) == 1
    assert "dropped 3 of 5 examples whose source or target is blank" in caplog.text
    caplog.clear()
    assert read_pairs(write("p", "a\tA\n\tB\nc\t\n\ne\tE\n")) == (["a", "e"], ["A", "E"])
    assert len(caplog.records) == 1
    assert "dropped 3 of 5 examples whose source or target is blank" in caplog.text


def test_nothing_is_logged_where_nothing_is_dropped(write, caplog):
    read_pairs(write("p", "a\tA\n"))
    assert not caplog.records


def test_files_of_unequal_length_name_the_first_line_without_partner(write):
    short, long = write("en", "a\nb\n"), write("de", "A\nB\nC\n")
    for pair in (short, long), (long, short):
        with pytest.raises(
            ValueError, match=r"received 2 in .*en and 3 in .*de, whose line 3 has no"
        ):
            read_files(*pair)


@pytest.mark.parametrize(
    "content, line, byte", [(b"a\tA\nb\xff\tB\n", 2, "ff"), (b"\xe4\tA\n", 1, "e4")]
)
def test_invalid_utf8_names_file_line_and_byte(write, content, line, byte):
    path = write("p.tsv", content)
    with pytest.raises(ValueError, match=rf"p\.tsv, line {line}: expected UTF-8, .*0x{byte}.*Save"):
        read_pairs(path)


def test_a_line_without_one_of_the_columns_is_named(write):
    path = write("p.tsv", "a\tA\nb B\n")
    expected = r"p\.tsv, line 2: expected columns 1 and 2, received 1 of them: 'b B'.*one TAB"
    with pytest.raises(ValueError, match=expected):
        read_pairs(path)
    with pytest.raises(ValueError, match=r"line 1: expected columns 3 and 1, received 2 of"):
        read_pairs(path, 3, 1)
    with pytest.raises(ValueError, match="source must be an integer of at least 1; received sou"):
        read_pairs(path, 0, 1)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_what_pythons_library_unpacks_is_read_whatever_its_name(write, tmp_path, pack):
    lines = [f"{n}\t{n * n}" for n in range(1000)]
    whole = pack("\n".join(lines).encode())
    assert data.read_lines(write("a.tsv", whole)) == lines
    with pytest.raises(ValueError, match=r"a.tsv: expected a complete \w+ file, .*again"):
        data.read_lines(write("a.tsv", whole[:-9]))
    with pytest.raises(ValueError, match=r"expected lines of text, received an empty file"):
        data.read_lines(write("a.tsv", pack(b"")))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(whole,))
    writer.start()
    assert data.read_lines(pipe) == lines
    writer.join()


@pytest.mark.parametrize(
    "start, message",
    [
        (b"PK\x03\x04\x14\0", "received a file of zip. Unpack it with unzip."),
        (b"7z\xbc\xaf\x27\x1c", "received a file of 7z"),
    ],
)
def test_another_compression_is_called_what_it_is(write, start, message):
    path = write("a.txt", start + b"\xff" * 30)
    for read in (data.read_lines, data.read_text):
        with pytest.raises(ValueError, match=message) as error:
            read(path)
        assert "by gzip, bzip2, xz, zstd or lz4" in str(error.value)
    assert data.read_lines(write("b.txt", b"BZh9 is text\nPK\n")) == ["BZh9 is text", "PK"]


WHOLE = gzip.compress("".join(f"{n}\t{n * n}\n" for n in range(1000)).encode())


@pytest.mark.parametrize(
    "broken",
    [WHOLE[:5], WHOLE[: len(WHOLE) // 2], WHOLE[:-3], WHOLE[:50] + b"\xff" * 50 + WHOLE[100:]],
    ids=["cut in the head", "cut in the data", "cut in the end mark", "overwritten"],
)
def test_a_damaged_gzip_file_is_an_error(write, broken):
    with pytest.raises(ValueError, match=r"p\.tsv\.gz: expected a complete gzip file, .*again"):
        read_pairs(write("p.tsv.gz", broken))


@pytest.mark.parametrize("compress", [False, True])
def test_an_empty_file_is_an_error(write, compress):
    with pytest.raises(ValueError, match="p: expected lines of text, received an empty file"):
        read_pairs(write("p", "", compress))


def test_a_file_without_a_complete_pair_is_an_error(write):
    with pytest.raises(
        ValueError, match="at least one complete example, received 2 whose source or target"
    ):
        read_files(write("en", "a\n\n"), write("de", "\nB\n"))


def test_a_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="expected a file, received a folder"):
        read_pairs(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.tsv: no such file"):
        read_pairs(tmp_path / "nowhere.tsv")


def test_columns_of_pairs_are_also_given_by_their_names(write):
    path = write("p.tsv", "de\tid\ten\nA\t1\ta\n\t2\tb\n")
    assert read_pairs(path, "en", "de") == (["a"], ["A"])
    assert read_pairs(path, 3, "de") == (["a"], ["A"])
    with pytest.raises(ValueError, match="line 1: expected a column named 'fr', received 'de', 'i"):
        read_pairs(path, "en", "fr")


# JSON Lines


@pytest.mark.parametrize("compress", [False, True])
def test_fields_of_json_lines_are_named(write, compress):
    lines = '{"en": "a", "x": 1, "de": "\\u00c4"}\n\n{"de": " C ", "en": "c"}\r\n'
    assert read_pairs(write("p.jsonl", lines, compress), "en", "de") == (
        ["a", "c"],
        ["Ä", "C"],
    )


def test_a_dot_reaches_into_an_object(write):
    line = '{"id": 1, "translation": {"en": "a", "de": "A"}}'
    pairs = read_pairs(write("p", line), "translation.en", "translation.de", json_lines=True)
    assert pairs == (["a"], ["A"])


@pytest.mark.parametrize(
    "line, message",
    [
        ("{'source': 1}", "line 2: expected a JSON object, received"),
        ('{"source": "a"}', "line 2: expected text in the field 'target', received None in an obj"),
        ('{"source": "a", "target": 3}', "line 2: .*field 'target', received 3"),
        (r'{"source": "a", "target": "b\ud800"}', "line 2: .*field 'target', .*half of a surrog"),
        ('["a", "b"]', r"line 2: expected a JSON object, received .*Write one object per line"),
        ("[" * 100_000, "line 2: expected a JSON object"),
    ],
)
def test_a_line_without_a_pair_is_named(write, line, message):
    path = write("p.jsonl", '{"source": "a", "target": "b"}\n' + line)
    with pytest.raises(ValueError, match=f"p.jsonl, {message}"):
        read_pairs(path)


# Cleaning


def test_normal_forms_and_lower_case_are_options():
    pairs = Examples(["E\u0301\uff21"], ["\ufb01N"])
    assert clean(pairs) == (["\u00c9\uff21"], ["\ufb01N"])
    assert clean(pairs, normalization="NFKC") == (["\u00c9A"], ["fiN"])
    assert clean(pairs, normalization="NFKC", lowercase=True) == (["\u00e9a"], ["fin"])
    assert clean(pairs, normalization=None) == pairs


def test_dropped_pairs_are_counted_with_the_reason(caplog):
    source, target = ["ab", "abcdef", "ab", "ab", "a"], ["xy", "x", "xy", "xyzuvw", "xyz"]
    with caplog.at_level(logging.WARNING):
        kept = clean(Examples(source, target), max_characters=5, max_ratio=2, unique=True)
    assert kept == (["ab"], ["xy"])
    (record,) = caplog.messages
    for part in (
        "Of 5 pairs",
        "2 dropped, longer than 5",
        "1 dropped, one side over 2",
        "1 repeated",
    ):
        assert part in record


def test_repeated_pairs_are_counted_and_kept_unless_unique_is_set(caplog):
    pairs = Examples(["a", "a", "a"], ["b", "b", "c"])
    with caplog.at_level(logging.WARNING):
        assert clean(pairs) == pairs
    assert "1 repeated (kept)" in caplog.text
    assert clean(pairs, unique=True) == (["a", "a"], ["b", "c"])


def test_a_pair_that_has_invisible_characters_alone_is_dropped_and_counted(caplog):
    pairs = Examples(["a", "\u200b", "c", ""], ["A", "B", "\u00ad", "D"])
    with caplog.at_level(logging.WARNING):
        assert clean(pairs) == (["a", ""], ["A", "D"])
    assert "Of 4 pairs: 2 dropped, invisible characters alone on one side" in caplog.text
    assert clean(pairs, keep_blank=True) == (["a", "", "c", ""], ["A", "B", "", "D"])


def test_equal_in_normal_form_is_equal():
    pairs = Examples(["\u00e9", "e\u0301"], ["b", "b"])
    assert clean(pairs, unique=True) == (["\u00e9"], ["b"])
    assert len(clean(pairs, normalization=None, unique=True).source) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"normalization": "nfc"},
            "one of NFC, NFKC.*received normalization='nfc'",
        ),
        ({"max_ratio": 0.5}, "max_ratio must be at least 1; received max_ratio=0.5"),
        ({"max_characters": 1}, "within the limits; received 1 pairs.*longer than 1 characters"),
        ({"max_characters": 0}, "max_characters must be an integer of at least 1; received max"),
    ],
)
def test_limits_that_leave_nothing_are_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        clean(Examples(["ab"], ["cd"]), **options)


def test_what_is_hardly_a_translation_is_dropped_with_its_reason(caplog):
    good = [(f"the dog number {n}", f"der Hund Nummer {n}") for n in range(60)]
    good += [
        ("call 555-1234 now", "Bitte 5551234 rufen"),
        ("two dogs", "2 Hunde"),
        ("1 2 3 4", "1 2 5 6"),
    ]
    good += [("12", "\u0661\u0662"), ("Wi-Fi \u0434\u0430", "WLAN ja"), ("...", "!")]
    copies = [("Caf\u00e9", " cafe\u0301"), ("OK", "ok"), ("12 %", "12 %")]
    digits = [("in 1998", "im Jahr 2005"), ("1 2 3 4", "5 6 7 1")]
    scripts = [
        ("a dog", "\u0441\u043e\u0431\u0430\u043a\u0430"),
        ("\u72d7 dog \u72d7\u72d7\u72d7", "Hund"),
    ]
    pairs = Examples(*map(list, zip(*good, *copies, *digits, *scripts, strict=True)))
    with caplog.at_level(logging.WARNING):
        kept = clean(pairs, plausible=True)
    assert list(zip(*kept, strict=True)) == good
    for part in (
        "Of 73 pairs",
        "3 dropped, target equals source",
        "2 dropped, digits of which less than half are in both sides",
        "2 dropped, letters of another script than that of their side",
    ):
        assert part in caplog.text
    assert clean(pairs, normalization=None) == pairs


def test_a_side_may_have_several_scripts():
    japanese = "\u72ac\u304c\u8d70\u308b\u30d1\u30fc\u30af"
    pairs = Examples(
        [f"a dog {'run ' * n}" for n in range(3)], [japanese, japanese[1], japanese[4:]]
    )
    assert clean(pairs, plausible=True) == pairs


def test_a_stream_is_cleaned_as_a_list_is():
    pairs = [(f"text {n}", f"\u0442\u0435\u043a\u0441\u0442 {n + n % 7}") for n in range(2500)]
    pairs[2000] = ("text", "text too")  # after the pairs that show the scripts
    streamed = list(Cleaner(**PRESET, on_disk=True).iterate(iter(pairs)))
    examples = clean(Examples(*map(list, zip(*pairs, strict=True))), **PRESET)
    assert streamed == list(zip(*examples, strict=True))
    assert pairs[0] in streamed and pairs[2000] not in streamed


def test_no_pair_to_clean_is_an_error():
    with pytest.raises(ValueError, match="received 0 pairs, none with text on both sides. Ra"):
        clean(Examples([], []))


def test_no_pair_with_text_to_score_is_an_error():
    with pytest.raises(ValueError, match="received 2 pairs, none with text on both sides"):
        clean(Examples(["\u200b", " \u00ad"], ["a", "b"]), keep_blank=True)


# Validation data


def test_every_fiftieth_example_or_about_a_thousand_are_for_validation():
    numbers = list(range(120))
    train, valid = train_valid_split(numbers)
    assert valid == [0, 50, 100]
    assert sorted(train + valid) == numbers
    train, valid = train_valid_split(Examples(numbers, [str(n) for n in numbers]))
    assert type(train) is type(valid) is Examples
    assert valid == ([0, 50, 100], ["0", "50", "100"])
    assert [str(n) for n in train.source] == train.target
    assert len(train_valid_split(list(range(200_000)))[1]) == 1000


@pytest.mark.parametrize("number", [0, 1])
def test_fewer_than_two_examples_cannot_be_split(number):
    message = f"two training lines, one of them for validation; received {number}. .* or --valid-t"
    with pytest.raises(ValueError, match=message):
        train_valid_split(["only"] * number, "lines", "--valid-text")


# tensorflow-datasets


@pytest.fixture
def tensorflow():
    reason = "tensorflow-datasets reads with TensorFlow"
    return pytest.importorskip("tensorflow", reason=reason, exc_type=ImportError)


@pytest.fixture
def folder(tmp_path):
    for name, text in {"en.train": "a b\nc\n\n", "de.train": "A B\n C \nx\n"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    return str(tmp_path)


def test_a_folder_of_languages_is_read_both_ways(tensorflow, folder):
    assert read_splits(folder, "en", "de").train == (["a b", "c"], ["A B", "C"])
    assert read_splits(folder).train == (["A B", "C"], ["a b", "c"])  # de before en
    assert read_splits(folder, target="de").train == (["a b", "c"], ["A B", "C"])


def test_all_splits_are_read_also_where_one_is_missing(tensorflow, folder):
    train = (["a b", "c"], ["A B", "C"])
    assert read_splits(folder, "en", "de") == (train, None, None)
    for name, text in {
        "en.dev": "d\n",
        "de.dev": "D\n",
        "en.test": "e\n",
        "de.test": "E\n",
    }.items():
        (pathlib.Path(folder) / f"{name}.txt").write_text(text)
    assert read_splits(folder, "en", "de") == (train, (["d"], ["D"]), (["e"], ["E"]))


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"source": "fr"}, ValueError, "in the feature 'fr', received the features .*en.*Choose"),
        ({"source": "en", "target": "en"}, ValueError, "Source and target must be two languages"),
        ({"name": "no_such_set"}, ValueError, "no_such_set: expected a dataset"),
        (
            {"name": "ted_hrlr_translate/pt_to_en"},
            FileNotFoundError,
            r"Allow the download \(--download\), or copy",
        ),
        ({"name": "tiny_shakespeare"}, FileNotFoundError, "tiny_shakespeare is not in"),
    ],
)
def test_an_unknown_dataset_or_language_is_named(
    tensorflow, folder, tmp_path, options, error, message
):
    given = {"name": folder, "data_dir": tmp_path / "none"} | options
    with pytest.raises(error, match=message):
        read_splits(**given)


def test_a_dataset_without_training_data_is_an_error(tensorflow, tmp_path):
    for name in ("en.test", "de.test"):
        (tmp_path / f"{name}.txt").write_text("a\n")
    with pytest.raises(ValueError, match="expected a split named train, received test. Choose"):
        read_splits(str(tmp_path))


def test_a_folder_without_languages_is_an_error(tensorflow, tmp_path):
    with pytest.raises(ValueError, match="expected files such as en.train.txt"):
        read_splits(str(tmp_path))


def test_a_folder_in_one_language_is_not_a_translation_dataset(tensorflow, tmp_path):
    (tmp_path / "en.train.txt").write_text("a b\nc\n")
    with pytest.raises(ValueError, match="expected text in two languages"):
        read_splits(str(tmp_path))


def test_a_dataset_in_one_language_is_not_a_translation_dataset(tensorflow):
    prepared = pathlib.Path(__file__).parents[2] / "shared" / "tfds"
    if not prepared.exists():
        pytest.skip("there is no prepared dataset of tensorflow-datasets")
    with pytest.raises(ValueError, match="expected text in two languages"):
        read_splits("tiny_shakespeare", data_dir=prepared)


def test_without_tensorflow_the_cure_is_named(folder):
    try:
        import tensorflow  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="need TensorFlow and tensorflow-datasets; install"):
            read_splits(folder)
    else:
        pytest.skip("TensorFlow is installed")


def test_the_line_of_a_text_is_found_in_any_file_and_form(tmp_path):
    plain, table, tagged = (tmp_path / name for name in ("a.txt", "b.tsv", "c.conllu"))
    plain.write_text("one\n\nCafe\u0301  au lait\n", "utf-8")
    table.write_text("x\tone\nx\tthe\u00a0two\n", "utf-8")
    rows = ["# text", "1\tthree\t_", "2\tfour\t_", "", "1\tfive\t_", "2\tsix\t_"]
    tagged.write_text("\n".join(rows), "utf-8")
    paths = [plain, table, tagged]
    assert find_line(paths, "caf\u00e9 au lait") == f"{plain}, line 3"
    assert find_line(paths, ["the", "two"]) == f"{table}, line 2"
    assert find_line(paths, ["three", "four"]) == f"{tagged}, line 1"
    assert find_line(paths, ["five", "six"]) == f"{tagged}, line 5"
    assert find_line(paths, "seven") is None and find_line([], "one") is None


def test_the_line_of_a_text_is_found_behind_its_escape_sequences(tmp_path):
    path, text = tmp_path / "a.jsonl", '"C:\\new"\tcaf\u00e9 \U0001f600 }{'
    rows = [{"source": "x", "target": ["y"]}, {"pair": {"en": "x", "de": text}}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    assert find_line([path], text) == f"{path}, line 2"
    assert find_line([path], "x") == f"{path}, line 1"
    assert find_line([path], "u00e9") is None


def test_the_line_of_a_text_is_not_looked_for_in_a_pipe(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n", "utf-8")
    assert find_line(["-", path], "one") == f"{path}, line 1" and find_line(["-"], "one") is None


def test_the_standard_input_is_one_side_alone():
    with pytest.raises(ValueError, match="can be one file only; received it twice"):
        iterate_files("-", "-")
