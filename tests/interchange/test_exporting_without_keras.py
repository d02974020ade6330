"""The same in a process without Keras: a file needs nothing but its engine."""

import io
import json
import os
import shutil
import subprocess
import sys

import pytest

from engines import (
    ENGINES,
    RUN,
    assert_few_differ,
    assert_same,
    other_tasks,
    require,
)
from keras_transformer.cli import lines
from keras_transformer.cli.lines import waiting_lines


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder in which Keras and this package cannot be imported."""
    folder = tmp_path_factory.mktemp("hidden")
    for name in ("keras", "keras_transformer"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is hidden')")
    return folder


@pytest.fixture(scope="module")
def run_freshly(exported, hidden, tmp_path_factory):
    """The answers of an exported task in a process without Keras."""

    def run_freshly(task, format, texts, *options):
        folder = exported(task, format)
        answers = tmp_path_factory.mktemp("answers") / "answers.json"
        if format == "saved_model":  # tensorflow_text imports Keras
            (hidden / "keras.py").rename(hidden / "visible")
        try:
            done = subprocess.run(
                [sys.executable, RUN, folder, "--json", answers, *map(str, options)],
                input="\n".join(texts) + "\n",
                env={**os.environ, "PYTHONPATH": str(hidden), "PYTHONIOENCODING": "utf-8"},
                encoding="utf-8",
                capture_output=True,
            )
        finally:
            if format == "saved_model":
                (hidden / "visible").rename(hidden / "keras.py")
        assert done.returncode == 0, done.stderr
        return json.loads(answers.read_text())["answers"]

    return run_freshly


@pytest.mark.once
def test_lines_are_those_of_the_command(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    from run_exported import lines_of, one_line

    for content in (
        "",
        "\n",
        "a",
        "a\nb\n",
        "a\r\n\r\nb\r\n",
        "\ufeffa\n\ufeffb",
        "a\u2028b\r\r\n",
    ):
        expected = list(waiting_lines(io.BufferedReader(io.BytesIO(content.encode())), 10_000))
        assert lines_of(content.encode()) == [line for batch in expected for line in batch]
    for answer in ("a", "a\nb\r\u2028", "", "\\n"):
        assert one_line(answer) == lines.one_line(answer)
    assert one_line([["a\n", 0.5]]) == '[["a\\n", 0.5]]'


READ = """
import argparse, sys
import run_exported

def answer(texts):
    print(texts)
    return [text.replace("https://a.b/C", "").upper() for text in texts]

options = argparse.Namespace(sentences=sys.argv[1], placeholders=None)
settings = dict(trained_length=6, longest_input=20, placeholders=["url"])
read = run_exported.in_sentences(answer, lambda texts: list(map(len, texts)), settings, options)
print(read(["Ab cd. See https://a.b/C.", "Ab.", "Long words, here they are."]))
"""


@pytest.mark.once
@pytest.mark.parametrize(
    "sentences, asked",
    [
        ("auto", ["Ab.", "Ab cd.", "See ⟦0⟧.", "Long words,", "here they are."]),
        ("never", ["Ab.", "Ab cd. See ⟦0⟧.", "Long words, here they are."]),
    ],
)
def test_sentences_and_placeholders_need_no_keras(tmp_path, sentences, asked):
    (tmp_path / "keras.py").write_text("raise ImportError('keras is hidden')")
    path = os.pathsep.join(map(str, (tmp_path, RUN.parent, RUN.parents[1])))
    done = subprocess.run(
        [sys.executable, "-c", READ, sentences],
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    answers = ["AB CD. SEE https://a.b/C.", "AB.", "LONG WORDS, HERE THEY ARE."]
    assert done.stdout.splitlines() == [str(asked), str(answers)]


LOSES = """
import run_exported

def engine(folder, options):
    settings = dict(placeholders=["url"])
    answer = lambda texts: [text.replace("⟦0⟧", "") for text in texts]
    return run_exported.in_sentences(answer, lambda texts: [1] * len(texts), settings, options)

run_exported.engine_of = lambda folder: engine
run_exported.main()
"""


@pytest.mark.once
@pytest.mark.parametrize("options", [[], ["--json", "answers.json"]], ids=["", "json"])
def test_the_note_about_placeholders_is_printed_once_per_file(tmp_path, options):
    (tmp_path / "keras.py").write_text("raise ImportError('keras is hidden')")
    path = os.pathsep.join(map(str, (tmp_path, RUN.parent, RUN.parents[1])))
    done = subprocess.run(
        [sys.executable, "-c", LOSES, "folder", *options],
        input="See https://a.b/C now.\n" * 200,
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        cwd=tmp_path,
        encoding="utf-8",
        capture_output=True,
    )
    note = "Of 200 sentences 200 were translated in pieces, for their placeholders to be kept.\n"
    assert (done.returncode, done.stderr) == (0, note)
    answers = json.loads((tmp_path / options[1]).read_text())["answers"] if options else None
    assert (answers or done.stdout.splitlines()) == ["See https://a.b/C now."] * 200


@pytest.mark.once
def test_without_this_package_sentences_are_refused_with_the_cure(hidden):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (hidden, RUN.parent)))}
    command = [sys.executable, "-c", READ, "auto"]
    done = subprocess.run(command, env=env, cwd=hidden, encoding="utf-8", capture_output=True)
    assert done.returncode == 1
    assert "need this package, without Keras (keras_transformer is hidden); install" in done.stderr


@pytest.mark.slow
def test_what_cannot_be_run_is_one_sentence(small_tasks, dates_translator, exported, tmp_path):
    onnx = exported(dates_translator, "onnx")
    filler, generator = (exported(small_tasks[name], "onnx") for name in ("filler", "generator"))
    tagged = shutil.copytree(onnx, tmp_path / "tagged")
    settings = json.loads((onnx / "settings.json").read_text()) | {"directions": ["en-de", "en-fr"]}
    (tagged / "settings.json").write_text(json.dumps(settings))
    for folder, options, content, reason in (
        (filler, [], b"a dog\n", "must have one [MASK]; received 'a dog'"),
        (filler, [], b"a [MASK] b [MASK]\n", "must have one [MASK]"),
        (onnx, ["--json", "missing/a.json"], b"a\n", "--json must name a file in an existing"),
        (onnx, ["--beams", "7"], b"a\n", "no graph beam7, but beam4, greedy"),
        (onnx, ["--beams", "4", "--step"], b"a\n", "--step is for greedy decoding"),
        (generator, ["--step"], b"a\n", "--step is for greedy decoding"),
        (onnx, [], b"\xff\n", "must be UTF-8"),
        (tagged, [], b"<2de> a\nb\n", "Line 2 must begin with <2de> or <2fr>; received 'b'"),
        (tagged, ["--sentences", "always"], b"<2de> a\n", "Texts with tags are translated whole"),
    ):
        command = [sys.executable, RUN, folder, *options]
        done = subprocess.run(command, input=content, capture_output=True, cwd=tmp_path)
        assert done.returncode == 1 and reason in done.stderr.decode(), done.stderr.decode()
        assert b"Traceback" not in done.stderr and not done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("format", [*ENGINES, "marian"])
def test_a_translator_gives_the_same_answers(dates_translator, dates, run_freshly, format, beams):
    texts = [*dates.test.source, "", "  ", "May ☃ 5, 2020"]
    answers = run_freshly(dates_translator, format, texts, "--beams", beams)
    assert_few_differ(dates_translator, format, None, texts, answers, beams)


@pytest.mark.slow
@pytest.mark.parametrize("format", ENGINES)
def test_other_tasks_give_the_same_answers(small_tasks, run_freshly, format):
    for task, texts, expected, max_tokens in other_tasks(small_tasks, format):
        assert_same(run_freshly(task, format, texts, "--max-tokens", max_tokens), expected)


@pytest.mark.slow
def test_a_loop_outside_the_graph_gives_the_same_answers(dates_translator, dates, run_freshly):
    texts = [*dates.test.source[:50], "", " "]
    answers = run_freshly(dates_translator, "onnx", texts, "--step")
    assert answers == dates_translator.translate(texts)


@pytest.mark.slow
def test_the_matrix_of_formats_is_one_command(small_tasks, tmp_path):
    require("litert")
    small_tasks["tagger"].save(tmp_path / "model.keras")
    (tmp_path / "texts").write_text("The dog barks.\n\nIt's a small cat!\n")
    command = [sys.executable, RUN.parent / "benchmark.py", "export", tmp_path / "model.keras"]
    command += ["--texts", tmp_path / "texts", "--least", "1"]
    command += ["--formats", "litert", "ctranslate2", "safetensors"]
    root = str(RUN.parents[2])
    done = subprocess.run(
        [*command, "--json", tmp_path / "rows.json"],
        env={**os.environ, "PYTHONPATH": root},
        encoding="utf-8",
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["format"], row["kind"], row.get("equal")) for row in rows] == [
        ("ours", "float32", 3),
        ("litert", "float32", 3),
        ("litert", "float16", 3),
        ("litert", "int8", 3),
        ("ctranslate2", "float32", None),
        ("safetensors", "float32", None),
    ]
    assert "can hold a Translator or TextGenerator" in rows[-2]["reason"]
    assert done.stdout.count("| Tagger") == len(rows)
