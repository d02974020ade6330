"""Pushing a model to the stand-in of the Hub, with its card."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from hubs import running_hub
from huggingface_hub import ModelCard, constants

import keras_transformer as kt
from keras_transformer.cli import main
from keras_transformer.tasks.sharing import push

pytestmark = pytest.mark.once

SAVED = pathlib.Path(__file__).parents[1] / "saved_by_0.1.0"
TRANSLATOR = SAVED / "translator.keras"
MODEL = "hf://user/dates"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with running_hub(monkeypatch, tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def run(tmp_path):
    """A folder of a run, with scores as a training script writes them."""
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(TRANSLATOR, folder / "model.keras")
    scores = {
        "split": "test",
        "bleu": 41.125,
        "signature": "case:mixed|eff:no",
        "overlapping": {"nats_per_token": 1.25},
        "tags": {"NOUN": {"f1": 0.5}},
        "confusion": [[1, 2]],
        "perplexity": None,
    }
    (folder / "scores.json").write_text(json.dumps(scores), "utf-8")
    return folder


def pushed(hub):
    """The files of the last commit."""
    ((_, commits),) = hub.repositories.items()
    return commits[-1]


def card_of(hub):
    return pushed(hub)["README.md"].decode()


def rows(card):
    """The rows of the tables of a card."""
    return dict(re.findall(r"^\| (.+?) \| (.*) \|$", card, re.MULTILINE))


def test_a_run_is_pushed_with_a_card_of_its_file_and_scores(hub, run, capsys):
    main(["push", str(run), MODEL, "--language", "en", "fr"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"{hub.url}/user/dates holds the model") and MODEL in printed
    assert (
        pushed(hub)["model.keras"] == TRANSLATOR.read_bytes() and '"private"' not in hub.requests[0]
    )
    card = ModelCard(card_of(hub))
    assert card.data.to_dict() == {
        "language": ["en", "fr"],
        "library_name": "keras",
        "pipeline_tag": "translation",
        "tags": ["keras_transformer"],
    }
    table = rows(card.text)
    summary = kt.check_file(TRANSLATOR)
    assert table["parameters"] == f"{summary.parameters:,}"
    assert table["tokenizers"] == "source_tokenizer=SentencePieceTokenizer"
    assert f"d_model={summary.config.d_model}" in table["config"]
    scores = {name: table.pop(name) for name in list(table)[list(table).index("sealed") + 1 :]}
    assert scores == {
        "split": "test",
        "bleu": "41.1250",
        "signature": r"case:mixed\|eff:no",
        "overlapping, nats per token": "1.2500",
    }


def test_a_run_is_pushed_to_a_private_repository_with_given_scores(hub, run, tmp_path):
    given = tmp_path / "mine.json"
    given.write_text('{"bleu": 2.5}', "utf-8")
    main(["push", str(run), MODEL, "--private", "--scores", str(given)])
    assert '"private"' in hub.requests[0] and rows(card_of(hub))["bleu"] == "2.5000"
    assert "exact" not in card_of(hub) and "split" not in rows(card_of(hub))


def test_languages_that_are_given_are_those_of_the_card(hub, run):
    push(run, MODEL, language=["en"])
    push(run, MODEL)
    assert ModelCard(card_of(hub)).data.language == ["en"]
    push(run, MODEL, language=["de", "fr"])
    card = ModelCard(card_of(hub))
    assert card.data.language == ["de", "fr"] and card.data.pipeline_tag == "translation"
    assert rows(card.text)["task"] == "Translator"


def test_scores_of_a_run_are_not_those_of_another_file_in_it(hub, run):
    shutil.move(run / "model.keras", run / "average-3.keras")
    push(run / "average-3.keras", MODEL)
    assert "Scores" not in card_of(hub)
    push(run / "average-3.keras", MODEL, scores={"bleu": 1.5})
    assert rows(card_of(hub))["bleu"] == "1.5000"


def test_the_next_push_keeps_the_text_of_a_card(hub, run):
    push(run, MODEL)
    text, found, _ = card_of(hub).partition("## The file\n")
    assert found
    mine = text.replace("library_name", "license: mit\nlibrary_name") + "Of 30,000 dates.\n\n"
    hub.commit("user/dates", {"README.md": f"{mine}{found}old".encode()})
    push(SAVED / "text_generator.keras", MODEL, scores={"nats": 1.5})
    assert card_of(hub).startswith(f"{mine}{found}")
    assert rows(card_of(hub))["task"] == "TextGenerator" and "old" not in card_of(hub)


def test_a_card_is_replaced_from_its_own_heading_on(hub, run):
    for mine in ("# dates\n\nMIT", "# dates\n\n### The file\n\nOf mine.\n\n"):
        hub.commit("user/dates", {"README.md": mine.encode()})
        push(run, MODEL)
        assert card_of(hub).startswith(f"{mine.rstrip()}\n\n## The file\n")
    with pytest.raises(ValueError, match='such as ."zh", "en".; received language=\'de\''):
        push(run, MODEL, language="de")


def test_a_task_is_saved_to_the_hub(hub):
    tagger = kt.load(SAVED / "tagger.keras")
    tagger.save(MODEL, scores={"exact_match": 1.0}, private=True)
    assert hub.requests[0].startswith("POST /api/repos/create") and '"private"' in hub.requests[0]
    assert rows(card_of(hub))["exact match"] == "1.0000"
    assert kt.check_file(MODEL).parameters == tagger.count_params()


@pytest.mark.parametrize(
    "fault, message",
    [
        (401, "the Hub must know who you are; log in"),
        (403, "your token does not permit this"),
        (500, "the transfer failed "),
    ],
)
def test_an_upload_that_is_refused_is_one_sentence(hub, fault, message):
    hub.fault = fault
    with pytest.raises(OSError, match=rf"^{MODEL}: {message}[^\n]*\.$"):
        push(TRANSLATOR, MODEL)
    assert not hub.repositories


def test_a_repository_is_replaced_only_if_it_may_be(hub):
    hub.commit("user/dates", {"README.md": b"mine"})
    with pytest.raises(OSError, match=f"^{MODEL}: the repository exists; choose another name"):
        push(TRANSLATOR, MODEL, overwrite=False)
    assert pushed(hub) == {"README.md": b"mine"}


def test_a_model_cannot_be_uploaded_without_a_network(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=rf"^{MODEL}: the transfer failed [^\n]*offline"):
        push(TRANSLATOR, MODEL)


@pytest.mark.parametrize("address", ["hf://user", "https://example.org/a.keras", "runs/a"])
def test_only_a_repository_takes_a_push(hub, address):
    with pytest.raises(ValueError, match="^An address is hf://USER/MODEL"):
        push(TRANSLATOR, address)
    with pytest.raises(ValueError, match="^Push to an address without @REVISION"):
        push(TRANSLATOR, f"{MODEL}@main")
    assert not hub.requests


def test_scores_must_be_an_object(hub, run):
    (run / "scores.json").write_text("[1", "utf-8")
    with pytest.raises(ValueError, match=r"^Scores must be one JSON object.*scores\.json"):
        push(run, MODEL)
    assert not hub.requests


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_the_code_of_a_card_answers_the_same_in_another_process(
    hub, tmp_path, dates_translator, dates, backend
):
    if not importlib.util.find_spec(backend):
        pytest.skip(f"{backend} is not installed")
    dates_translator.save(MODEL)
    texts = dates.test.source[:20]
    (code,) = re.findall(r"```python\n(.*?)```", card_of(hub), re.DOTALL)
    code = code.replace('["..."]', repr(texts))
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "other"),
        "HF_HUB_OFFLINE": "0",
    }
    environment = {**os.environ, **environment, "KERAS_BACKEND": backend}
    if backend == "tensorflow":  # the gate hides it from the others
        environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-c", code]
    settings = dict(env=environment, cwd=pathlib.Path(kt.__file__).parents[1])
    result = subprocess.run(command, **settings, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert eval(result.stdout.splitlines()[-1]) == dates_translator.translate(texts)
