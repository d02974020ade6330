import subprocess
import sys

import pytest

from keras_transformer.data.placeholders import (
    KINDS,
    find_placeholders,
    mask,
    mask_pair,
    placeholder_pattern,
    split_placeholders,
    unmask,
)

pytestmark = pytest.mark.once

CASES = {
    "url": {
        "See https://en.wikipedia.org/wiki/A_(b). Or www.x.de/a?b=c, now": [
            "https://en.wikipedia.org/wiki/A_(b)",
            "www.x.de/a?b=c",
        ],
        "(http://a.b/c?d=e&f#g) [x](https://a.b/)": ["http://a.b/c?d=e&f#g", "https://a.b/"],
        "请看https://a.b/c。然后": ["https://a.b/c"],
        "In SSH://x.y/é-Ж, then": ["SSH://x.y/é-Ж"],
        "去https://例子.com/路径。看http://a.b/吧.": ["https://例子.com/路径", "http://a.b/"],
        "A house.": [],
    },
    "email": {"Write to a.b+c@d-e.org. Or 写给x@y.cn吧": ["a.b+c@d-e.org", "x@y.cn"]},
    "path": {
        "Edit <b>/etc/hosts</b>, ~/a.txt and ./b/c.py.": ["/etc/hosts", "~/a.txt", "./b/c.py"],
        r"In C:\Users\me, src/x/y.py; and/or 1/2 km/h, 3 / 4": [r"C:\Users\me", "src/x/y.py"],
        r"D:/a, \\x\y, /a/*.é, ~/.b": ["D:/a", r"\\x\y", "/a/*.é", "~/.b"],
    },
    "code": {
        "Run `a = 1. B` and ``x``.": ["`a = 1. B`", "``x``"],
        "So:\n```\na. B\n```\nIt": ["```\na. B\n```"],
        "it`s": [],
    },
    "tag": {
        '<b class="x">Hi</b> {name}, %s %1$s %(n)d %.2f': [
            '<b class="x">', "</b>", "{name}", "%s", "%1$s", "%(n)d", "%.2f",
        ],
        "请%s看{x}吧": ["%s", "{x}"],
        "{{ y z }} #{x} $HOME %-5.1f %ld, $5 <!-- no --> {a b}": [
            "{{ y z }}", "#{x}", "$HOME", "%-5.1f", "%ld", "<!-- no -->",
        ],
        "${x} {{y}} {0} &nbsp; 50 % der 100%ig 3 < 4 > 2": ["${x}", "{{y}}", "{0}", "&nbsp;"],
    },
    "number": {
        "On 12/05/2019 at 3.14, 1,000 or 7.": ["12/05/2019", "3.14", "1,000", "7"],
        "v2.1.0 of 2026-11-28, 1'000 – 77": ["v2.1.0", "2026-11-28", "1'000", "77"],
    },
    r"[A-Z]{2}-\d+": {"Ticket AB-123, A-1": ["AB-123"]},
}  # fmt: skip
ALL = placeholder_pattern(KINDS)


@pytest.mark.parametrize("kind", CASES)
def test_each_kind_is_found(kind):
    pattern = placeholder_pattern([kind])
    for text, expected in CASES[kind].items():
        assert find_placeholders(text, pattern) == expected
        masked = mask(text, pattern)
        assert not any(each in masked for each in expected)
        assert unmask(masked, expected) == text
        parts = split_placeholders(text, pattern)
        assert "".join(parts) == text
        assert not any(each in sentence for each in expected for sentence in parts[1::2])


LONG = 200_000
# Long runs of which no place begins what a kind is; each was read from every one of its places.
HARD = [
    "%",
    "-",
    "a",
    "a+",
    "<!--",
    "a:",
    "{",
    "&a",
    "@a",
    "a@",
    "www.",
    "(",
    "`a\\n",
    "\u5b57",
    "~/*",
]
HARD_CODE = f"""
import resource
from keras_transformer.data.placeholders import KINDS, find_placeholders, placeholder_pattern
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # seconds; it needs a few
texts = [part * ({LONG} // len(part)) for part in {HARD!r}]
texts += ["a://" + texts[-2], "%" + "0" * {LONG}, "www" + "." * {LONG}]
for kind in KINDS:
    for text in texts:
        find_placeholders(text, placeholder_pattern([kind]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of a process")
def test_a_long_text_takes_linear_time():
    done = subprocess.run([sys.executable, "-c", HARD_CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or done.returncode


def test_only_ten_placeholders_are_masked_and_a_mask_in_a_text_is_one():
    text = " ".join(f"{{n{number}}}" for number in range(12))
    assert mask(text, ALL).endswith("⟦9⟧ {n10} {n11}")
    assert unmask(mask(text, ALL), find_placeholders(text, ALL)) == text
    assert find_placeholders("⟦3⟧ {x}", ALL) == ["⟦3⟧", "{x}"]
    assert unmask(mask("⟦3⟧ {x}", ALL), ["⟦3⟧", "{x}"]) == "⟦3⟧ {x}"


def test_both_sides_of_a_pair_have_the_same_masks():
    pair = "{a} then {b} and {a}", "{b}, dann {a} und {a}"
    assert mask_pair(*pair, ALL) == ("⟦0⟧ then ⟦1⟧ and ⟦2⟧", "⟦1⟧, dann ⟦0⟧ und ⟦2⟧")
    for target in ("{b}, dann {a}", "{b} {a} {c}", ""):
        assert mask_pair(pair[0], target, ALL) == (pair[0], target)


def test_the_parts_around_placeholders_have_no_marks_at_their_edges():
    parts = split_placeholders("See ({x}), [here](http://a.b). Now!", ALL)
    assert parts == ["", "See", " ({x}), [", "here", "](http://a.b). ", "Now!", ""]
    assert split_placeholders("{x}: {y}.", ALL) == ["{x}: {y}."]


def test_each_regular_expression_works_as_if_it_were_alone():
    kinds = [r"(?i)iphone", r"(?P<a>\w)-(?P=a)", r"(?P<a>\d)=\1", r"(?<=x)y", "number", r"b|(?=z)"]
    pattern = placeholder_pattern(kinds)
    text = "IPhone 12 Iphone, a-a a-b 5=5 5=6 xy zy b z"
    found = ["IPhone", "12", "Iphone", "a-a", "b", "5=5", "5", "6", "y", "b"]
    assert find_placeholders(text, pattern) == found
    assert unmask(mask(text, pattern), found) == text
    assert mask("5=6 IPHONE", pattern) == "⟦0⟧=⟦1⟧ ⟦2⟧"


def test_the_first_kind_counts_where_several_match():
    assert find_placeholders("v1.2-rc 3", placeholder_pattern([r"v\S+", "number"])) == [
        "v1.2-rc",
        "3",
    ]
    assert find_placeholders("v1.2-rc 3", placeholder_pattern(["number", r"v\S+"])) == ["v1.2", "3"]


@pytest.mark.parametrize("kind", ["urls", "(", "a*", ""])
def test_a_kind_that_is_not_known_is_refused(kind):
    with pytest.raises(
        ValueError, match="A placeholder must be one of url, email, path, code, tag"
    ):
        placeholder_pattern(["url", kind])
    assert placeholder_pattern([]) is None
