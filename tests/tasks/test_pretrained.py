"""The models that come with the package: they answer as their cards promise."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import keras_transformer as kt
from keras_transformer.tasks import pretrained

ROOT = pathlib.Path(__file__).parents[2]


def card(name):
    return (pretrained.FOLDER / f"{name}.md").read_text()


def test_three_come_with_the_package():
    assert pretrained.NAMES == ["dates", "shakespeare", "zh-en"]
    assert sum(file.stat().st_size for file in pretrained.FOLDER.iterdir() if file.is_file()) < 8e6


@pytest.mark.parametrize("name", pretrained.NAMES)
def test_each_has_a_card_with_what_was_measured(name):
    for part in ("**Data**", "**Licence**", "**Limits**", "## Measured", "train_", "trained"):
        assert part in card(name)
    assert f"| parameters | {kt.check_file(name).parameters:,} |" in card(name)


def test_dates_are_translated():
    translator = kt.load("dates")
    assert translator.translate(["May 3, 2021", "22 April 2019"]) == ["2021-05-03", "2019-04-22"]
    exact = float(re.search(r"exact match .* \| ([\d.]+)%", card("dates"))[1])
    test = kt.data.dates().test
    sample = test.source[:200]
    assert kt.evaluation.exact_match(translator.translate(sample), test.target[:200]) >= 0.99
    assert exact > 99.9


@pytest.mark.slow
def test_chinese_is_translated_as_the_card_shows():
    text, translation = re.search(r'translate zh-en "(.*)" +# (.*)', card("zh-en")).groups()
    assert kt.load("zh-en").translate([text]) == [translation]


@pytest.mark.slow
def test_shakespeare_knows_who_speaks():
    generator = kt.load("shakespeare")
    verse = "But, soft! what light through yonder window breaks?"
    known, shuffled = generator.score([verse, "".join(sorted(verse))])
    assert known.nats < 0.5 * shuffled.nats
    (text,) = generator.generate(["ROMEO:\n"], max_tokens=30, temperature=0)
    assert text.startswith("ROMEO:\n") and len(text) > 30


def test_a_file_or_folder_overrides_the_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pretrained.find("dates") == pretrained.FOLDER / "dates.keras"
    shutil.copy(pretrained.FOLDER / "shakespeare.keras", "dates")
    assert pretrained.find("dates") == pathlib.Path("dates")
    assert kt.check_file("dates").task == "TextGenerator"


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(
        FileNotFoundError, match=r"no model at date; dates, shakespeare, zh-en come"
    ):
        kt.load("date")


@pytest.mark.slow
def test_the_first_command_of_a_newcomer(tmp_path):
    """As installed: from another folder, in a process of its own."""
    command = "from keras_transformer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "translate", "dates", "May 3, 2021"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "2021-05-03\n"), done.stderr


@pytest.mark.slow
def test_a_build_scores_the_file_and_writes_the_card(tmp_path, monkeypatch):
    """Of a run that has ended: nothing is random, so file and card are those of the package."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import build_pretrained

    given, expected = pretrained.FOLDER / "dates.keras", card("dates")
    run, built = tmp_path / "runs" / "pretrained" / "dates", tmp_path / "built"
    run.mkdir(parents=True)
    built.mkdir()
    shutil.copy(given, run / "model.keras")
    settings = {"started": "2000-01-01T", "machine": "a machine", "versions": {"keras": "3"}}
    (run / "settings.json").write_text(json.dumps(settings))
    (built / "dates.md").write_text(expected.partition("## Measured")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrained, "FOLDER", built)
    monkeypatch.setattr(build_pretrained, "train", lambda options, run: None)
    monkeypatch.setattr(sys, "argv", ["build_pretrained.py", "dates"])
    build_pretrained.main()
    trained = "| trained | 2000-01-01, a machine, keras 3 |"
    assert card("dates") == re.sub(r"\| trained .*", trained, expected)
    assert given.stat().st_size == pytest.approx((built / "dates.keras").stat().st_size, rel=0.01)
