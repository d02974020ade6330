"""A static page for a model: its folder, its graph, and the ids of its vocabularies in node."""

import io
import itertools
import json
import pathlib
import random
import re
import shutil
import subprocess

import keras
import numpy as np
import pytest
import sentencepiece

import keras_transformer as kt
from engines import SENTENCES, require
from keras_transformer import interchange
from keras_transformer.cli import main
from keras_transformer.interchange.graphs import attentions_of, observed_pass
from keras_transformer.interchange.onnx import write_graphs
from keras_transformer.interchange.web import exporting
from keras_transformer.tokenizers.byte_level import ByteLevelTokenizer, BytePairs
from keras_transformer.tokenizers.normal_forms import INVISIBLE, normalized
from keras_transformer.tokenizers.sentencepiece import SentencePieceTokenizer

NODE = shutil.which("node")
OWN = pathlib.Path(exporting.__file__).with_name("page")
ADDRESS = re.compile(r"""(?:https?:)?//[\w.]+\.\w+[^\s"']*""")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """A folder with the names of ONNX Runtime's files."""
    folder = tmp_path_factory.mktemp("onnxruntime-web")
    (folder / "dist").mkdir()
    for name in exporting.RUNTIME:
        (folder / "dist" / name).write_text(name)
    return folder


@pytest.fixture(scope="module")
def page(small_tasks, runtime, tmp_path_factory):
    require("web")
    folder = tmp_path_factory.mktemp("web") / "tags"
    interchange.export(small_tasks["tagger"], folder, "web", runtime=runtime, name="tags")
    return folder


@pytest.mark.once
def test_a_page_has_every_file_that_it_names_and_names_none_outside(page):
    names = {p.relative_to(page).as_posix() for p in page.rglob("*") if p.is_file()}
    expected = {"index.html", "style.css", "theme.js", "main.js", "views/attention.js"}
    expected |= {"api.js", "model.js", "vocabularies.js", "words/zh.js"}
    expected |= {"model/settings.json", "model/pass.onnx", f"runtime/{exporting.RUNTIME[1]}"}
    assert expected <= names
    settings = json.loads((page / "model/settings.json").read_text("utf-8"))
    assert (settings["name"], settings["task"], settings["graphs"]) == ("tags", "Tagger", ["pass"])
    for name in [name for name in names if name.endswith((".js", ".html"))]:
        content = (page / name).read_text("utf-8")
        links = re.findall(r'(?:from|import|href=|src=) ?"([^"#]+)"', content)
        assert links or name.startswith(("words/", "theme", "beams", "vocabularies"))
        for link in links:  # below any path of a server
            assert (page / name).parent.joinpath(link).is_file() and not link.startswith("/"), link
    own = [name for name in names if name.endswith((".js", ".html", ".css"))]
    addresses = {
        address
        for name in own
        if not name.startswith("runtime/")
        for address in ADDRESS.findall((page / name).read_text("utf-8"))
    }
    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.once
def test_the_graph_of_a_pass_has_the_answers_and_the_weights_of_each_head(page, small_tasks):
    onnxruntime = pytest.importorskip("onnxruntime", reason="engines are optional")
    tagger = small_tasks["tagger"]
    session = onnxruntime.InferenceSession(page / "model/pass.onnx")
    words = tagger.vocabulary.split(SENTENCES[0])
    (word_ids,), (character_ids,) = tagger.vocabulary.encode([words])
    inputs = dict(word_ids=word_ids[None], character_ids=character_ids[None])
    names = [output.name for output in session.get_outputs()]

    def run(heads):
        return dict(zip(names, session.run(None, {**inputs, "heads": heads}), strict=True))

    (layer,) = attentions_of(tagger)
    on = run(np.ones((1, 2), "float32"))
    p = np.exp(on["logits"][..., 1:])
    expected = tagger._probabilities([words])[0]
    np.testing.assert_allclose((p / p.sum(-1, keepdims=True))[0], expected[: len(word_ids)], 1e-4)
    assert on["weights_0"].shape == (1, layer.num_heads, len(word_ids), len(word_ids))
    np.testing.assert_allclose(on["weights_0"].sum(-1), 1, rtol=1e-5)
    off = run(np.array([[1, 0]], "float32"))
    np.testing.assert_allclose(off["weights_0"], on["weights_0"], rtol=1e-5)
    assert np.abs(off["logits"] - on["logits"]).max() > 1e-3


@pytest.mark.once
def test_in_the_graph_of_a_pass_the_look_ahead_mask_can_be_off(small_tasks, tmp_path):
    require("web")
    onnxruntime = pytest.importorskip("onnxruntime", reason="engines are optional")
    graph = observed_pass(small_tasks["generator"])
    write_graphs({"pass": graph}, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "pass.onnx")
    names = [output.name for output in session.get_outputs()]
    inputs = {"token_ids": np.array([[2, 5, 6, 7]], "int32")}
    inputs["heads"] = np.ones(graph.inputs["heads"][0], "float32")
    for look_ahead in (True, False):
        found = session.run(None, {**inputs, "look_ahead": np.array(look_ahead)})
        weights = dict(zip(names, found, strict=True))["weights_0"]
        assert bool(np.triu(weights, 1).any()) != look_ahead
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
        own = graph.function(**inputs, look_ahead=look_ahead)["weights_0"]
        np.testing.assert_allclose(weights, keras.ops.convert_to_numpy(own), atol=1e-5)


@pytest.mark.once
@pytest.mark.parametrize("given", [None, "missing", "empty"])
def test_without_its_runtime_a_page_is_refused_in_a_sentence(small_tasks, given, tmp_path):
    require("web")
    (tmp_path / "empty").mkdir()
    folder = tmp_path / given if given else None
    expected = r"^[^\n]*--runtime.*folder of the npm package onnxruntime-web[^\n]*\.$"
    with pytest.raises(ValueError, match=expected):
        interchange.export(small_tasks["tagger"], tmp_path / "page", "web", runtime=folder)
    command = ["export", "dates", "--format", "web", "--output", str(tmp_path / "page")]
    command += ["--runtime", str(folder)] if folder else []
    with pytest.raises(SystemExit, match=expected):
        main(command)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.once
def test_a_runtime_is_refused_for_any_other_format(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["export", "dates", "--output", str(tmp_path / "page"), "--runtime", str(tmp_path)])
    assert "--runtime would not be used: it needs --format web" in capsys.readouterr().err


SCRIPTS = {
    "Latin": "abcdefghijklmnopqrstuvwxyzäöüßéÅÆŒ",
    "Cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюяЁ",
    "Greek": "αβγδεζηθικλμνξοπρσςτυφχψωΆΣ",
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآ\u064b\u0651",
    "Devanagari": "अआइईउकखगघचजटडतदनपबमयरलवशसह\u093e\u093f\u0940\u0947\u094d",
    "Chinese": "我你他昨天给写了一封信喜欢喝茶会说英语吗天气很好们的是不在有这",
    "kana": "あいうえおかきくけこさしすせそアイウエオカキクケコガパー",
}
RARE = [
    *"0123456789.,!?'’()-\t\u00a0\u0085\u00ad\u200d\ufeff▁<>&☃𝒳👩🏽한글Ａ１ﬁ™①ｶﾞ",
    "  ",
    "</s>",
    "<unk>",
]
RARE += ["\u0301", ">>fra<<", " >>fra<< ", "'s", "'ll", "<0x41>", "\r\n", "\x1c", "\u3000", "İ"]


def texts_of(number, seed):
    """Texts of the scripts, with what is rare in all of them."""
    draw = random.Random(seed)
    texts = ["", " ", "  a  ", "▁", "e\u0301", "한글"]
    while len(texts) < number:
        letters = SCRIPTS[draw.choice(list(SCRIPTS))]
        words = [
            "".join(draw.choices(letters, k=draw.randint(1, 6))) for _ in range(draw.randint(1, 6))
        ]
        for _ in range(draw.choice([0, 0, 1, 2])):
            words.insert(draw.randint(0, len(words)), draw.choice(RARE))
        texts.append(draw.choice(["", " "]).join(words) if draw.random() < 0.3 else " ".join(words))
    return texts


def trained(texts, **options):
    """A vocabulary of SentencePiece with options that `train_tokenizer` does not have."""
    model = io.BytesIO()
    special = dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, **special, **options
    )
    return model.getvalue()


def with_unused(proto):
    """The vocabulary, some of whose pieces no text is split into."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    for piece in model.pieces[20::7]:
        if piece.type == piece.NORMAL:
            piece.type = piece.UNUSED
    return model.SerializeToString()


def vocabularies(texts):
    """Tokenizers of each kind."""
    for kind in ("bpe", "unigram", "char", "byte"):
        size = 900 if kind in ("bpe", "unigram") else None
        yield kind, kt.train_tokenizer(texts, size, kind)
        reserve = [">>fra<<", "給<2fr>", "☃", "ab"]
        yield f"{kind}, reserved", kt.train_tokenizer(texts, size and size + 4, kind, reserve)
    some = [text for text in texts if text.strip()]
    marian = dict(model_type="unigram", vocab_size=700, user_defined_symbols=[">>fra<<", "▁>>de<<"])
    proto = trained(some, normalization_rule_name="nmt_nfkc", **marian)
    yield "as Marian's", SentencePieceTokenizer(with_unused(proto))
    llama = dict(model_type="bpe", vocab_size=700, byte_fallback=True, character_coverage=0.98)
    proto = trained(some, normalization_rule_name="nfkc_cf", user_defined_symbols=["<<"], **llama)
    yield "bytes of what is unknown", SentencePieceTokenizer(proto)
    import tokenizers

    library = tokenizers.ByteLevelBPETokenizer()
    library.train_from_iterator(texts, vocab_size=900, show_progress=False)
    learned = json.loads(library.to_str())["model"]
    tokens = sorted(learned["vocab"], key=learned["vocab"].get)
    pairs = [tuple(pair if isinstance(pair, list) else pair.split()) for pair in learned["merges"]]
    yield "byte-level", ByteLevelTokenizer.of_pairs(BytePairs(tokens, pairs))


def in_node(code, **given):
    """The JSON that a module prints."""
    code = f"""
        import {{ normalized, tokenizerOf, wordVocabulary }} from "{OWN}/vocabularies.js";
        const parts = [];
        for await (const part of process.stdin) parts.push(part);
        const given = JSON.parse(Buffer.concat(parts).toString());
        process.stdout.write(JSON.stringify(({code})(given)));
    """
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", code],
        input=json.dumps(given).encode(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


needs_node = pytest.mark.skipif(not NODE, reason="needs node, which runs the page's modules here")


@needs_node
@pytest.mark.once
@pytest.mark.slow
def test_ids_and_texts_in_a_browser_are_those_of_the_package():
    pytest.importorskip("tokenizers", reason="this tokenizer is optional")
    texts = texts_of(10_000, seed=1)
    forms = itertools.cycle([("NFC", False), ("NFKC", True), (None, False), ("NFD", True)])
    for (name, tokenizer), (form, lowercase) in zip(
        vocabularies(texts[:1500]), forms, strict=False
    ):
        settings = dict(normalization=form, lowercase=lowercase)
        settings["invisible"] = INVISIBLE if form else None
        read = [normalized(text, form, lowercase) for text in texts]
        expected = tokenizer.encode(read)
        code = """({ settings, vocabulary, texts, cut }) => {
            const tokenizer = tokenizerOf(vocabulary);
            const ids = texts.map((text) => tokenizer.encode(normalized(text, settings)));
            return [ids, [...ids, ...cut].map(tokenizer.decode)];
        }"""
        cut = [ids[1::2] for ids in expected]  # also halves of characters
        vocabulary = exporting.vocabulary_of(tokenizer)
        given = dict(settings=settings, vocabulary=vocabulary, texts=texts, cut=cut)
        ids, decoded = in_node(code, **given)
        differ = [x for x in zip(texts, ids, expected, strict=True) if x[1] != x[2]]
        assert not differ, (name, len(differ), differ[:3])
        pairs = zip([*expected, *cut], decoded, tokenizer.decode([*expected, *cut]), strict=True)
        differ = [x for x in pairs if x[1] != x[2]]
        assert not differ, (name, len(differ), differ[:3])
        assert len({tuple(row) for row in ids}) > 5000


@needs_node
@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("segmentation", ["unicode", "latin"])
def test_words_in_a_browser_are_those_of_the_package(segmentation):
    texts = texts_of(10_000, seed=2)
    sentences = [kt.split_words(text) for text in texts[:1500]]
    sentences = [words for words in sentences if words]
    vocabulary = kt.WordVocabulary.learn(sentences, 2, 5, segmentation=segmentation)
    model = kt.TaggingModel(
        vocabulary.num_words,
        vocabulary.num_characters,
        3,
        max_characters=5,
        num_layers=1,
        d_model=8,
        num_heads=2,
        d_ff=8,
    )
    settings = exporting.settings_of(kt.Tagger(model, vocabulary, ["A", "B"]))
    code = """({ settings, texts }) => {
        const vocabulary = wordVocabulary(settings);
        return texts.map(vocabulary.split).map((words) => [words, vocabulary.encode(words)]);
    }"""
    found = in_node(code, settings=settings, texts=texts)
    expected = [vocabulary.split(text) for text in texts]
    assert [words for words, _ in found] == expected
    word_ids, character_ids = vocabulary.encode(expected)
    assert [ids["word_ids"] for _, ids in found] == [ids.tolist() for ids in word_ids]
    assert [ids["character_ids"] for _, ids in found] == [
        ids.ravel().tolist() for ids in character_ids
    ]
