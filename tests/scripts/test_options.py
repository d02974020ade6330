"""Options of the training scripts: where a default comes from, what may be combined, the help."""

import dataclasses
import importlib
import json
import math
import pathlib
import re
import sys
import types

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import __version__, data
from keras_transformer.data import TranslationBatches
from keras_transformer.models.configuration import PRESETS, TransformerConfig
from keras_transformer.training import Run
from keras_transformer.training.run import FILES

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def options():
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("options")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def command_line(options):
    return importlib.import_module("command_line")


@pytest.fixture(scope="module")
def recipes(options):
    return importlib.import_module("recipes")


@pytest.fixture(scope="module")
def running(options):
    return importlib.import_module("running")


@pytest.fixture(scope="module")
def toys(recipes):
    """Recipes of a translation: by default, with data, and only by name."""
    tiny, base = vars(PRESETS["tiny"]), vars(PRESETS["base"])
    return recipes.named(
        recipes.Translation,
        {
            "toy": tiny | dict(output="runs/toy", batch_size=8),
            "wide": base | dict(output="runs/wide", d_ff=96, tokens_per_batch=512, ema=0.9),
            "pre": tiny | dict(output="runs/pre", norm_first=True, rotary=True),
        },
        epochs=2,
        learning_rate=1e-3,
        warmup_steps=10,
    )


@pytest.fixture
def parsed(command_line, toys, monkeypatch):
    """The options that a script makes of a command line."""

    def parsed(*words, recipes=toys):
        monkeypatch.setattr(sys, "argv", ["scripts/train.py", *map(str, words)])
        return command_line.parse(
            "A test.\n\n    python train.py \\\n        --pairs a.tsv\n", recipes
        )

    return parsed


@pytest.mark.parametrize("option", ["--output", "--init-from", "--compilation-cache"])
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_an_empty_value_is_that_of_an_unset_variable(parsed, option, resume):
    with pytest.raises(ValueError, match=f"must have a value, or be left out.*{option}"):
        parsed(option, "", *resume)


def test_the_data_is_not_a_file_of_the_run_that_is_overwritten(tmp_path):
    Run(tmp_path).begin({}, ["data"])
    (tmp_path / "sample.txt").write_text("a text")
    with pytest.raises(ValueError, match="An input must not be a file of the run"):
        FILES.check_inputs(tmp_path, ["a.tsv", tmp_path / "sample.txt"])
    FILES.check_inputs(tmp_path, [tmp_path / "notes.txt", "a.tsv"])


def test_the_command_line_overrides_the_recipe(parsed):
    toy = parsed()
    assert (toy.run.recipe, toy.run.output, toy.training.batch_size) == ("toy", "runs/toy", 8)
    assert (toy.model, toy.training.label_smoothing) == (PRESETS["tiny"], 0.1)
    wide = parsed("--recipe", "wide", "--num-heads", "2", "--dropout=0.5")
    expected = TransformerConfig(d_model=512, d_ff=96, num_heads=2, dropout=0.5)
    assert wide.model == expected
    assert (wide.training.ema, wide.training.tokens_per_batch) == (0.9, 512)


@pytest.mark.parametrize(
    "words, recipe",
    [
        ([], "toy"),
        (["--seed", "3"], "toy"),
        (["--pairs", "a.tsv"], "wide"),
        (["--pairs", "a.tsv", "--recipe", "toy"], "toy"),
        pytest.param(["--dataset", "tfds:x"], "wide", marks=pytest.mark.slow),
        pytest.param(["--test-source", "a"], "wide", marks=pytest.mark.slow),
    ],
)
def test_without_a_name_the_recipe_depends_on_whether_there_is_data(parsed, words, recipe):
    assert parsed(*words).run.recipe == recipe


def test_data_alone_does_not_select_the_recipe_for_trained_models(recipes, parsed):
    for task in ("PRETRAINING", "TAGGING"):
        of_task = getattr(recipes, task)
        with_data = parsed("--train", "a.txt", recipes=of_task).run.recipe
        assert with_data == {"PRETRAINING": "words", "TAGGING": "treebank"}[task]


@pytest.mark.parametrize("name", ["text_generator", "text_generator_learned"])
def test_a_model_file_of_version_0_1_0_provides_sizes_and_window(recipes, parsed, name):
    path = SCRIPTS.parent / "tests" / "saved_by_0.1.0" / f"{name}.keras"
    options = parsed("--init-from", path, recipes=recipes.LANGUAGE_MODELLING)
    window, lines = {"text_generator": (16, False), "text_generator_learned": (24, True)}[name]
    assert (options.run.recipe, options.window, options.lines) == ("fine-tune", window, lines)
    assert options.tokenizer.vocabulary_size == 29


def test_a_translator_provides_its_depths_and_a_related_task_takes_that_of_its_encoder(
    recipes, parsed, tmp_path
):
    tokenizer = kt.train_tokenizer(["abc"], model_type="char")
    sizes = dict(num_layers=4, encoder_layers=2, decoder_layers=1, d_model=8, num_heads=2, d_ff=8)
    translator = kt.Translator(kt.Transformer(tokenizer.vocabulary_size(), **sizes), tokenizer)
    translator.save(tmp_path / "model.keras")
    assert kt.load(tmp_path / "model.keras").model.config == translator.model.config
    words = ("--init-from", tmp_path / "model.keras")
    model = parsed(*words, recipes=recipes.TRANSLATION).model
    assert (model.encoder_layers, model.decoder_layers) == (2, 1)
    model = parsed(*words, recipes=recipes.TAGGING).model
    assert (model.num_layers, model.encoder_layers, model.decoder_layers) == (2, None, None)


@pytest.mark.slow
def test_what_a_recipe_turns_on_the_command_line_can_turn_off(parsed):
    for words, expected in (
        ([], (False, False)),
        (["--norm-first"], (True, False)),
        (["--recipe", "pre"], (True, True)),
        (["--recipe", "pre", "--no-norm-first"], (False, True)),
        (["--recipe", "pre", "--no-rotary"], (True, False)),
    ):
        model = parsed(*words).model
        assert (model.norm_first, model.rotary) == expected
    assert parsed("--recipe", "wide", "--ema", "0").training.ema == 0


def test_none_among_files_is_refused(parsed):
    with pytest.raises(ValueError, match="none must stand alone; .* received options='--pairs'"):
        parsed("--pairs", "none", "a.tsv")


@pytest.mark.parametrize("none", ["none", "None", "NONE"])
def test_none_turns_off_what_a_recipe_sets(parsed, none):
    wide = parsed("--recipe", "wide", "--tokens-per-batch", none, "--ema", none).training
    assert (wide.tokens_per_batch, wide.ema) == (None, None)
    assert parsed("--pairs", "a.tsv", "--tokenize", "none").scoring.tokenize == "none"  # a name


def test_sizes_are_checked_with_the_recipe_that_is_chosen_and_with_no_other(parsed):
    # 3 heads divide neither width but that of the command line.
    assert parsed("--recipe", "wide", "--num-heads", "3", "--d-model", "48").model.num_heads == 3
    assert parsed("--recipe", "wide", "--num-heads", "128").model.num_heads == 128  # not 64 wide


def test_one_kind_of_batch_and_one_kind_of_mean_replaces_the_other(parsed):
    options = parsed("--recipe", "wide", "--batch-size", "4", "--average", "2").training
    assert (options.batch_size, options.tokens_per_batch) == (4, None)
    assert (options.average, options.ema) == (2, None)
    with pytest.raises(ValueError, match="--ema or --average, not both"):
        parsed("--ema", "0.9", "--average", "2")
    with pytest.raises(ValueError, match="--batch-size or --tokens-per-batch, not both"):
        parsed("--batch-size", "2", "--tokens-per-batch", "20")


def test_simcut_replaces_the_r_drop_of_a_recipe_and_is_the_model_that_is_trained(
    recipes, running, parsed
):
    words = "--recipe", "treebank"
    assert parsed(*words, recipes=recipes.TAGGING).training.r_drop == 1
    options = parsed(*words, "--simcut", "3", "--cutoff", "0.1", recipes=recipes.TAGGING)
    assert (options.training.r_drop, options.training.simcut) == (None, 3)
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
    model = running.for_training(options, kt.TaggingModel(9, 9, 5, **sizes))
    assert (type(model), model.alpha, model.cutoff) == (kt.training.SimCut, 3, 0.1)
    with pytest.raises(ValueError, match="--r-drop or --simcut, not both"):
        parsed("--simcut", "3", "--r-drop", "1")
    with pytest.raises(ValueError, match="--logits-in-pieces or --simcut, not both"):
        parsed("--simcut", "3", "--logits-in-pieces", "2")


def test_more_buckets_are_more_shapes_with_less_padding(parsed):
    generator = np.random.default_rng(0)
    texts = [[7] * length for length in generator.integers(1, 90, 300)]
    batches = {
        number: TranslationBatches(texts, texts, **parsed("--num-buckets", number).budget)
        for number in (2, 16)
    }
    assert len(batches[2].shapes) == 2 and len(batches[16].shapes) == 16
    assert batches[16].padding_share < batches[2].padding_share / 3
    assert parsed().budget["num_buckets"] == 8


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("num_buckets", 0, "num_buckets must be an integer of at least 1; received num_buckets=0"),
        ("epochs", 0, "epochs must be an integer of at least 1; received epochs=0"),
        ("accumulate", 0, "accumulate must be an integer of at least 1; received accumulate=0"),
        ("patience", 0, "patience must be an integer of at least 1"),
        ("average", -1, "average must be an integer of at least 0"),
        ("batch_size", 0, "batch_size must be an integer of at least 1"),
        ("warmup_steps", 0, "warmup_steps must be an integer of at least 1"),
        ("dropout", 1, r"dropout must be in \[0, 1\); received dropout=1"),
        ("dropout", math.nan, "received dropout=nan"),
        ("label_smoothing", 1, r"label_smoothing must be in \[0, 1\)"),
        ("ema", 1, r"ema must be in \[0, 1\)"),
        ("learning_rate", 0, "learning_rate must be above 0"),
        ("weight_decay", -1, "weight_decay must be at least 0"),
        ("decay_share", 0, "decay_share must be above 0"),
        ("decay_share", 1, r"decay_share must be in \[0, 1\)"),
        ("optimizer", "sgd", "optimizer must be one of adam, adamw, lion, muon"),
        ("decoder_layers", 0, "decoder_layers must be an integer of at least 1"),
        ("clip_norm", -1, "clip_norm must be above 0"),
        ("r_drop", -1, "r_drop must be at least 0"),
        ("simcut", -1, "simcut must be at least 0"),
        ("cutoff", 1, r"cutoff must be in \[0, 1\)"),
        ("seed", -1, "seed must be an integer of at least 0"),
        ("threads", 0, "threads must be an integer of at least 1"),
        ("num_heads", 7, "num_heads must divide d_model; received num_heads=7, d_model=64"),
        ("diversify", -1, "diversify must be an integer of at least 0"),
        ("subword_alpha", 2, r"subword_alpha must be in \[0, 1\]"),
        ("max_ratio", 0.5, "max_ratio must be at least 1"),
        ("beams", 0, "beams must be an integer of at least 1"),
        ("length_penalty", -1, "length_penalty must be at least 0"),
        ("bleu_sentences", 0, "bleu_sentences must be an integer of at least 1"),
        ("tokenize", "nonsense", "tokenize must be one of sacreBLEU's tokenizers"),
    ],
)
def test_a_number_out_of_range_is_one_sentence(toys, name, value, message):
    with pytest.raises(ValueError, match=message):
        toys["toy"].replace(**{name: value})


def test_a_number_out_of_range_on_the_command_line_is_the_same_sentence(parsed):
    with pytest.raises(ValueError, match="epochs must be an integer of at least 1; received ep"):
        parsed("--epochs", "0")
    with pytest.raises(ValueError, match="num_heads must divide d_model; received num_heads=7"):
        parsed("--num-heads", "7")


@pytest.mark.parametrize(
    "words, message",
    [
        ("--epochs three", "--epochs: expected an integer; received 'three'"),
        ("--epoch 3", "--epochs"),
        ("--recipe small", "wide"),
        ("--schedule linear", "cosine"),
        ("--sides 1", "--sides"),
    ],
)
def test_a_usage_error_ends_with_code_2(parsed, capsys, words, message):
    with pytest.raises(SystemExit) as exit:
        parsed(*words.split())
    assert exit.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("task", ["tagging", "classification", "language", "pretraining"])
def test_ranges_of_the_other_tasks(recipes, parsed, task):
    cases = {
        "tagging": (recipes.TAGGING, "--min-count 0", "min_count must be an integer"),
        "classification": (
            recipes.CLASSIFICATION,
            "--word-dropout -1",
            "word_dropout must be at least 0",
        ),
        "language": (recipes.LANGUAGE_MODELLING, "--window 1", "window must be an integer of at"),
        "pretraining": (recipes.PRETRAINING, "--mask-rate 1", r"mask_rate must be in \[0, 1\)"),
    }
    of_task, words, message = cases[task]
    with pytest.raises(ValueError, match=message):
        parsed(*words.split(), recipes=of_task)


@pytest.mark.parametrize(
    "words, option",
    [
        ("--pairs a.tsv --pairs b.tsv", "--pairs"),
        ("--seed 1 --epochs 2 --seed=1", "--seed"),
        ("--rotary --no-rotary", "--rotary"),
        ("--num-layers 1 --num_layers 2", "--num-layers"),
    ],
)
def test_an_option_that_is_given_twice_is_refused(parsed, words, option):
    with pytest.raises(ValueError, match=f"Give {option} once, .*; received {option}='2 times'"):
        parsed(*words.split())


UNUSED = [
    ("TRANSLATION", "--download", "--dataset"),
    ("TRANSLATION", "--sides 2 1", "--pairs or --dataset"),
    ("TRANSLATION", "--tokenize zh", "a BLEU score"),
    ("TRANSLATION", "--pairs a.tsv --mix-share 0.5", "data to mix in"),
    ("TRANSLATION", "--mix-pairs a.tsv", "training data"),
    ("TRANSLATION", "--dataset tfds:x --valid-pairs a.tsv", "files, without --dataset"),
    ("TRANSLATION", "--prepared a --vocabulary char", "a vocabulary to learn"),
    ("TRANSLATION", "--prepared a --vocabulary-size 80", "a vocabulary to learn"),
    ("LANGUAGE_MODELLING", "--prepared a --reserve <x>", "a vocabulary to learn"),
    ("TRANSLATION", "--prepared a --placeholders url", "a vocabulary to learn"),
    ("TRANSLATION", "--weight-decay 0.1", "--optimizer adamw, lion or muon"),
    ("TRANSLATION", "--decay-share 0.1", "--schedule wsd"),
    ("TRANSLATION", "--cutoff 0.1", "--simcut"),
    ("TAGGING", "--encoder-layers 2", "a translation; others have --num-layers"),
    ("TRANSLATION", "--language-tags", "--pairs"),
    ("TRANSLATION", "--pairs en-de.tsv --both-directions", "--language-tags"),
    ("TRANSLATION", "--pairs en-de.tsv --corpus-temperature 5", "--language-tags"),
    ("TAGGING", "--train a.tsv --column XPOS", "a treebank"),
    ("TAGGING", "--train a.conllu --tokens words", "--dataset"),
    ("CLASSIFICATION", "--columns 2 1", "--train or --dataset"),
    ("CLASSIFICATION", "--dataset tfds:x --test a.tsv", "files, without --dataset"),
    ("LANGUAGE_MODELLING", "--train a.txt --lines --window 9", "a text without --lines"),
    ("LANGUAGE_MODELLING", "--train a.txt --feature text", "--dataset, .jsonl or .parquet"),
    ("TRANSLATION", "--source a --target b --quoted", "--pairs or --train"),
    ("CLASSIFICATION", "--dataset tfds:x --quoted", "--pairs or --train"),
    ("PRETRAINING", "--mix-in a.txt", "training data"),
    ("PRETRAINING", "--logits-bias", "a translation or a language model"),
    ("TAGGING", "--lora-rank 2", "--init-from"),
    ("TRANSLATION", "--freeze encoder", "--init-from"),
    ("LANGUAGE_MODELLING", "--train a.txt --recipe fine-tune", "--init-from"),
]


@pytest.mark.parametrize("task, words, needs", UNUSED)
def test_an_option_that_would_not_be_used_is_refused(recipes, parsed, task, words, needs):
    with pytest.raises(ValueError, match=f"would not be used: it needs {needs}.* Leave it out"):
        parsed(*words.split(), recipes=getattr(recipes, task))


def test_an_option_is_used_with_what_it_needs(recipes, parsed):
    for task, words in (
        ("TRANSLATION", "--dataset tfds:x --download --sides en de --tokenize zh"),
        ("TRANSLATION", "--source a --target b --mix-pairs c --mix-share 0.5 --sides 2 1"),
        ("TAGGING", "--train a.CONLL --column XPOS"),
        ("CLASSIFICATION", "--train a.tsv --columns 2 1 --quoted"),
        ("TRANSLATION", "--pairs a.csv --quoted"),
        ("LANGUAGE_MODELLING", "--train a.parquet --feature words"),
        ("LANGUAGE_MODELLING", "--dataset hf:x --feature words"),
        ("LANGUAGE_MODELLING", "--train a.txt --window 9"),
    ):
        parsed(*words.split(), recipes=getattr(recipes, task))


def test_several_files_of_a_task_are_one(running, recipes, parsed, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name}\n")
    given = ("--train", tmp_path / "b", tmp_path / "[a]", "--valid", tmp_path / "a")
    options = parsed(*given, recipes=recipes.PRETRAINING)
    read = running.reader(options, lambda path: [pathlib.Path(path).read_text()])
    assert (read("train"), read("valid"), read("mix")) == (["b\n", "a\n"], ["a\n"], None)
    options = parsed("--train", tmp_path / "nothing", recipes=recipes.PRETRAINING)
    with pytest.raises(FileNotFoundError, match="nothing: no such file"):
        running.reader(options, str)("train")


def test_several_texts_are_one_text_unless_each_line_is_one(recipes, parsed, tmp_path):
    load = importlib.import_module("train_language_model").load
    for name in "ab":
        (tmp_path / name).write_text(f"{name}\n" * 5)
    (tmp_path / "c.jsonl").write_text('{"words": "c"}\n' * 5)
    files = ("--train", *(tmp_path / name for name in ("a", "b", "c.jsonl")), "--feature", "words")
    (train,), (valid,), _ = load(parsed(*files, recipes=recipes.LANGUAGE_MODELLING), [])
    assert train + valid == "a\n" * 5 + "\n" + "b\n" * 5 + "\n" + "c\n" * 4 + "c"
    lines = parsed(*files, "--lines", recipes=recipes.LANGUAGE_MODELLING)
    train, valid, _ = load(lines, [])
    assert sorted(train + valid) == ["a"] * 5 + ["b"] * 5 + ["c"] * 5


def test_one_text_of_a_dataset_has_one_text_for_validation(recipes, parsed, monkeypatch):
    load = importlib.import_module("train_language_model").load
    splits = data.Splits(["a"], ["b", "c"], ["d", "e"])
    monkeypatch.setattr(data, "read_text_splits", lambda *_, **__: splits)
    words, task = ("--dataset", "tfds:x"), recipes.LANGUAGE_MODELLING
    assert load(parsed(*words, recipes=task), []) == (["a"], ["b\nc"], ["d\ne"])
    assert load(parsed(*words, "--lines", recipes=task), []) == splits


def test_the_standard_input_is_one_file_of_all_options(recipes, parsed):
    assert parsed("--train", "-", "a", recipes=recipes.PRETRAINING).train == ("-", "a")
    for words in ("--pairs - a -", "--source - --target a --test-source -"):
        with pytest.raises(ValueError, match="standard input can be one file only; received it"):
            parsed(*words.split())


def test_one_option_is_a_preset_of_filters_of_training_pairs(parsed):
    plain = parsed("--pairs", "a.tsv", "--max-ratio", "3").cleaning
    assert plain.filters == {"max_ratio": 3, "unique": False}
    preset = {"max_ratio": 9.0, "unique": True, "plausible": True}
    assert parsed("--pairs", "a.tsv", "--clean").cleaning.filters == preset
    given = parsed("--pairs", "a.tsv", "--clean", "--max-ratio", "3").cleaning
    assert given.filters == preset | {"max_ratio": 3}


def help_of(parsed, capsys, *words, **kwargs):
    with pytest.raises(SystemExit) as exit:
        parsed(*words, **kwargs)
    assert exit.value.code == 0
    printed = capsys.readouterr().out
    return printed, " ".join(printed.split())  # one line per option


def test_help_shows_each_default_with_the_recipes_that_set_it(parsed, capsys):
    printed, words = help_of(parsed, capsys, "--help")
    assert printed.startswith("usage: train.py [OPTION ...]\n\nA test.\n\n    python train.py \\\n")
    assert "--label-smoothing FLOAT Share of the probability" in words
    assert "vocabulary. (default: 0.1)" in words  # of every recipe
    assert "(toy: 8; wide, pre: none)" in words  # --batch-size
    assert "(toy: runs/toy; wide: runs/wide; pre: runs/pre)" in words
    assert "--norm-first, --no-norm-first" in words and "(toy, wide: off; pre: on)" in words
    assert "--recipe {toy,wide,pre}" in words and "(default: toy; with data: wide)" in words
    assert "--sides FROM TO" in words and "--source FILE" in words and "--patience INT" in words


OTHER_TASKS = ["TAGGING", "CLASSIFICATION", "LANGUAGE_MODELLING", "PRETRAINING"]


@pytest.mark.parametrize(
    "task", ["TRANSLATION", *(pytest.param(n, marks=pytest.mark.slow) for n in OTHER_TASKS)]
)
def test_every_option_of_every_task_has_one_name_a_help_and_a_default(
    command_line, recipes, parsed, capsys, task
):
    of_task = getattr(recipes, task)
    first = next(iter(of_task.values()))
    groups = [each for each in vars(first).values() if dataclasses.is_dataclass(each)]
    names = [name for group in groups for name in vars(group)]
    names += [name for name, value in vars(first).items() if value not in groups]
    assert len(set(names)) == len(names) == len(first.flat())
    _, words = help_of(parsed, capsys, "--help-all", recipes=of_task)
    docs = {}
    for each in (*groups, first):
        docs |= command_line.described(type(each))[0]
    for name in names:
        flag = "--" + name.replace("_", "-")
        assert f" {flag} " in words or f" {flag}, --no-" in words
        assert f" {docs[name]} (" in words, flag  # and then its default
    shown = set(
        re.findall(r"^  --[\w-]+", help_of(parsed, capsys, "--help", recipes=of_task)[0], re.M)
    )
    assert 25 < len(shown) <= 45
    for name, recipe in of_task.items():
        if name != "fine-tune":  # which needs a model
            assert parsed("--recipe", name, recipes=of_task) == recipe.replace(recipe=name)


def test_flat_options_and_back(toys):
    wide = toys["wide"]
    flat = wide.flat()
    assert flat["d_ff"] == 96 and flat["epochs"] == 2 and "model" not in flat
    assert toys["toy"].replace(**flat) == wide
    with pytest.raises(TypeError, match="nonsense"):
        wide.replace(nonsense=1)


# Resuming


def start(options, folder):
    Run(folder).begin(options.flat(), data=[])


def test_only_the_epochs_of_a_resumed_run_may_change(parsed, tmp_path):
    words = ("--output", tmp_path, "--learning-rate", "0.5", "--overwrite", "--sides", "2", "1")
    started = parsed(*words, "--pairs", "a.tsv", "--recipe", "toy")
    start(started, tmp_path)
    resumed = parsed("--resume", "--output", tmp_path, "--epochs", "7")
    assert resumed == started.replace(resume=True, epochs=7) and resumed.files.sides == ("2", "1")
    with pytest.raises(ValueError, match="keeps its settings.*leave out --precision, --d-model"):
        parsed("--resume", "--output", tmp_path, "--precision", "bfloat16", "--d-model", "8")


def test_a_run_of_before_an_option_was_added_is_resumed_with_its_default(parsed, tmp_path):
    started = parsed("--output", tmp_path)
    flat = started.flat()
    assert (flat.pop("layer_norm_epsilon"), flat.pop("logits_bias")) == (1e-6, False)
    assert (flat.pop("num_buckets"), flat.pop("callback")) == (8, ())
    assert flat.pop("quoted") is flat.pop("clean") is False
    assert (flat.pop("encoder_layers"), flat.pop("decoder_layers")) == (None, None)
    assert flat.pop("optimizer") == "adam"
    assert flat.pop("weight_decay") and flat.pop("decay_share")  # not used
    assert flat.pop("simcut") is None and flat.pop("cutoff") == 0.05
    flat |= {"steps_per_execution": 1, "data_dir": None}  # options of that time, not used
    Run(tmp_path).begin(flat, data=[])
    assert parsed("--resume", "--output", tmp_path) == started.replace(resume=True)


def test_a_run_of_before_an_option_named_several_files_is_resumed(parsed, tmp_path):
    started = parsed("--output", tmp_path, "--pairs", "a.tsv", "--valid-pairs", "b.tsv")
    assert started.files.pairs == ("a.tsv",)
    Run(tmp_path).begin(started.flat() | {"pairs": "a.tsv", "valid_pairs": "b.tsv"}, data=[])
    resumed = started.replace(resume=True)
    assert parsed("--resume", "--output", tmp_path) == resumed
    assert parsed("--resume", "--output", tmp_path, "--pairs", "a.tsv") == resumed
    with pytest.raises(ValueError, match="keeps its settings.*leave out --pairs"):
        parsed("--resume", "--output", tmp_path, "--pairs", "b.tsv")
    config = ("--config", tmp_path / "settings.json", "--output", "other")
    assert parsed(*config, "--valid-pairs", "none").files.valid_pairs is None
    assert parsed(*config).files.valid_pairs == ("b.tsv",)


def test_a_run_with_its_recipes_alternative_replaced_is_resumed_as_it_was(parsed, tmp_path):
    started = parsed("--recipe", "wide", "--batch-size", "4", "--output", tmp_path)
    start(started, tmp_path)
    assert parsed("--resume", "--output", tmp_path) == started.replace(resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_a_learning_rate_that_has_reached_0_is_not_resumed(parsed, tmp_path, schedule):
    start(parsed("--output", tmp_path, "--schedule", schedule), tmp_path)
    with pytest.raises(ValueError, match="rate is 0 after the last epoch; leave out --epochs"):
        parsed("--resume", "--output", tmp_path, "--epochs", "7")


@pytest.mark.parametrize("others", [{"preset": "tiny"}, {"steps_per_execution": 4}])
def test_options_of_another_version_are_not_resumed(parsed, tmp_path, others):
    Run(tmp_path).begin(parsed().flat() | others, data=[])
    with pytest.raises(ValueError, match="are of another version; start a new run"):
        parsed("--resume", "--output", tmp_path)


def test_a_run_can_begin_with_the_options_of_another(parsed, tmp_path):
    words = ("--recipe", "wide", "--pairs", "a.tsv", "--sides", "2", "1", "--output", tmp_path)
    started = parsed(*words, "--overwrite", "--seed", "7")
    start(started, tmp_path)
    config = ("--config", tmp_path / "settings.json")
    assert parsed(*config) == started.replace(overwrite=False)
    assert parsed("--config", tmp_path) == started.replace(overwrite=False)
    changed = parsed(*config, "--output", "other", "--batch-size", "4", "--seed", "8")
    expected = dict(output="other", batch_size=4, tokens_per_batch=None, seed=8, overwrite=False)
    assert changed == started.replace(**expected)


def test_a_run_that_began_with_the_options_of_another_is_resumed(parsed, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    start(parsed("--recipe", "wide", "--seed", "7", "--output", one), one)
    words = ("--config", one / "settings.json", "--batch-size", "4", "--output", other)
    started = parsed(*words)
    start(started, other)
    assert parsed(*words, "--resume") == started.replace(resume=True)
    with pytest.raises(ValueError, match="keeps its settings.*leave out --batch-size"):
        parsed(*words[:2], "--output", other, "--resume", "--batch-size", "5")


def test_the_options_of_an_older_run_are_those_it_had(parsed, tmp_path):
    started = parsed("--output", tmp_path, "--optimizer", "muon", "--schedule", "cosine")
    later = ("optimizer", "weight_decay", "decay_share", "simcut", "cutoff", "num_buckets")
    arguments = {name: value for name, value in started.flat().items() if name not in later}
    Run(tmp_path).begin(arguments, data=[])
    found = parsed("--config", tmp_path / "settings.json")
    assert found == started.replace(optimizer="adam")


@pytest.mark.parametrize(
    "content, words, message",
    [
        ({"nonsense": 1}, [], "must hold options of this task; received unknown='--nonsense'"),
        ({"epochs": 0}, [], "epochs must be an integer of at least 1"),
        ({"recipe": "gone"}, [], "recipe must be one of toy, .*; received recipe='gone'"),
        ({"schedule": "foo"}, [], "schedule must be one of paper, .*; received schedule='foo'"),
        ({}, ["--recipe", "toy"], "and more: leave out --recipe; received recipe='toy'"),
        (None, [], "settings.json: expected the settings of a run, received a damaged file"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_sentence(
    parsed, tmp_path, content, words, message
):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"arguments": content}), "utf-8")
    with pytest.raises(ValueError, match=message):
        parsed("--config", path, *words)
    with pytest.raises(FileNotFoundError, match=r"none.json: no such file. Check its name"):
        parsed("--config", tmp_path / "none.json")


# What they mean


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize(
    "schedule, end",
    [("cosine", 0.0), ("paper", 0.5 * (10 / 40) ** 0.5), ("wsd", 0.0), ("constant", 0.5)],
)
def test_the_rate_has_its_peak_after_the_warm_up_and_then_decays(
    running, parsed, numpy, schedule, end, accumulate
):
    words = ("--schedule", schedule, "--learning-rate", "0.5", "--accumulate", accumulate)
    optimizer = running.make_optimizer(parsed(*words), num_batches=40 * accumulate)
    rates = [float(numpy(optimizer._learning_rate(batch))) for batch in range(40 * accumulate + 1)]
    peak, warm = max(range(len(rates)), key=rates.__getitem__), 10 * accumulate
    assert rates[peak] == pytest.approx(0.5) and peak in (warm - 1, warm)  # the paper's 1 is 0
    assert rates[-2 if schedule == "paper" else -1] == pytest.approx(end, abs=1e-6)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_wsd_keeps_its_peak_until_the_last_share_of_the_updates(running, parsed, numpy, accumulate):
    words = ("--schedule", "wsd", "--decay-share", "0.25", "--accumulate", accumulate)
    optimizer = running.make_optimizer(parsed(*words), num_batches=40 * accumulate)
    rates = [float(numpy(optimizer._learning_rate(n * accumulate))) for n in (15, 29, 35)]
    np.testing.assert_allclose(rates, 1e-3 * np.array([1, 1, 0.5]), rtol=1e-6)


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize(
    "words, size",
    [([], "--batch-size"), (["--tokens-per-batch", "64", "--batch-size", "none"], "--tokens-per")],
)
def test_a_training_that_ends_within_its_warm_up_says_so(
    running, parsed, capsys, accumulate, words, size
):
    options = parsed(*words, "--accumulate", accumulate)
    running.make_optimizer(options, num_batches=10 * accumulate)
    assert not capsys.readouterr().out
    running.make_optimizer(options, num_batches=10 * accumulate - 1)
    printed = capsys.readouterr().out
    assert printed.startswith("The 9 updates of this training end within its warm-up of 10,")
    assert f"raise --epochs, or lower --warmup-steps or {size}" in printed


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_moving_average_of_few_updates_does_not_hold_the_first_weights(
    running, parsed, capsys, numpy, accumulate
):
    words = ("--ema", "0.998", "--accumulate", accumulate, "--warmup-steps", "1")
    options = parsed(*words, "--schedule", "cosine")
    for updates, momentum in ((5_000, 0.998), (100, 0.95), (5, 0.0)):
        optimizer = running.make_optimizer(options, updates * accumulate)
        assert optimizer.ema_momentum == pytest.approx(momentum ** (1 / accumulate))
        printed = capsys.readouterr().out
        assert bool(printed) == (momentum < 0.998)
    optimizer = running.make_optimizer(options, 100 * accumulate)
    printed = capsys.readouterr().out
    assert printed.startswith("After so few updates --ema 0.998 would still hold 82% of the first")
    weight = keras.Variable([1.0])
    optimizer.build([weight])
    for number in range(100 * accumulate):  # the first weights are 1, all others 0
        weight.assign([float(number == 0)])
        optimizer.apply([keras.ops.zeros(1)])
    (mean,) = optimizer._model_variables_moving_average
    assert float(numpy(mean)[0]) < 0.01
    options = options.replace(schedule="constant")  # which may be trained for more epochs
    optimizer = running.make_optimizer(options, 100 * accumulate)
    assert optimizer.ema_momentum == pytest.approx(0.998 ** (1 / accumulate))
    assert capsys.readouterr().out.endswith("first weights; raise --epochs, or lower it.\n")


def test_fine_tuning_has_no_moving_average():
    recipes = importlib.import_module("recipes")
    for name in ("TRANSLATION", "TAGGING", "CLASSIFICATION", "LANGUAGE_MODELLING", "PRETRAINING"):
        options = getattr(recipes, name)["fine-tune"]
        assert options.training.ema is None and options.training.average == 0


def test_the_options_reach_the_optimizer(running, parsed):
    words = ("--weight-decay", "0.3", "--clip-norm", "2", "--accumulate", "3", "--ema", "0.9")
    optimizer = running.make_optimizer(parsed("--optimizer", "muon", *words), num_batches=40)
    assert isinstance(optimizer, keras.optimizers.Muon)
    assert optimizer.weight_decay == optimizer.adam_weight_decay == 0.3
    assert optimizer.global_clipnorm == 2 and optimizer.gradient_accumulation_steps == 3
    paper = running.make_optimizer(parsed(), num_batches=40)
    assert isinstance(paper, keras.optimizers.Adam) and paper.weight_decay is None


def test_without_a_kernel_to_train_there_is_no_weight_decay(running, parsed):
    model = kt.Transformer(9, num_layers=1, d_model=8, num_heads=2, d_ff=8)
    frozen = ("encoder", "decoder")
    running.freeze(parsed().replace(freeze=frozen), model)
    for words in (("--optimizer", "lion"), ("--optimizer", "adamw", "--weight-decay", "0")):
        with pytest.raises(ValueError, match="all kernels frozen, use --optimizer adam; received"):
            running.freeze(parsed(*words).replace(freeze=frozen), model)


def test_a_run_with_a_constant_rate_is_resumed_for_more_epochs(parsed, tmp_path):
    started = parsed("--output", tmp_path, "--schedule", "constant")
    start(started, tmp_path)
    resumed = parsed("--resume", "--output", tmp_path, "--epochs", "7")
    assert resumed == started.replace(resume=True, epochs=7)


@pytest.mark.slow
def test_a_moving_average_reaches_as_far_back_with_gradient_accumulation(running, parsed, numpy):
    weight, lags = keras.Variable([0.0]), []
    for accumulate in (1, 3):
        words = ("--ema", "0.9", "--learning-rate", "0.1", "--warmup-steps", "1")
        given = parsed(*words, "--accumulate", accumulate)
        optimizer = running.make_optimizer(given, num_batches=60 * accumulate)
        weight.assign([0.0])
        optimizer.build([weight])
        for _ in range(60 * accumulate):
            optimizer.apply([keras.ops.ones(1)])
        mean = optimizer._model_variables_moving_average[0]
        lags.append(float(numpy(mean - weight)[0]))
    # several batches per update: less than an update later
    assert lags[0] < lags[1] < 1.1 * lags[0]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--sides", "1"], "argument --sides: expected 2 arguments"),
        (["--sides"], "argument --sides: expected 2 arguments"),
        (["--sides", "1", "2", "3"], "unrecognized arguments: 3"),
        (["--patience", "x"], "argument --patience: expected an integer; received 'x'"),
        (["--clip-norm", "x"], "argument --clip-norm: expected a number; received 'x'"),
        (["--epoch", "3"], "unrecognized arguments: --epoch 3. Perhaps you meant --epochs"),
        (["--lr", "3"], "unrecognized arguments: --lr 3. Perhaps you meant --learning-rate"),
    ],
)
def test_an_error_of_types_is_a_sentence(parsed, capsys, words, message):
    with pytest.raises(SystemExit):
        parsed(*words)
    assert capsys.readouterr().err == f"train.py: {message}. See train.py --help.\n"


def test_the_version_is_printed(parsed, capsys):
    with pytest.raises(SystemExit) as exit:
        parsed("--version")
    assert not exit.value.code
    assert capsys.readouterr().out == f"keras-transformer {__version__}\n"


def test_callbacks_of_other_modules_follow_those_of_the_run(running, parsed, tmp_path, monkeypatch):
    code = "import keras\ndef tracking():\n    return keras.callbacks.LambdaCallback()\n"
    (tmp_path / "module_of_a_user.py").write_text(code, "utf-8")
    monkeypatch.chdir(tmp_path)
    names = ["module_of_a_user:tracking", "keras.callbacks:History"]
    options = parsed("--callback", *names, "--accumulate", "2", "--checkpoint-every", "3")
    run = types.SimpleNamespace(callbacks=lambda batches, **given: [given["checkpoint_every"]])
    number, *own, samples = running.callbacks(options, run, [], lambda: "")
    assert number == 6  # batches, as the run counts
    kinds = (keras.callbacks.LambdaCallback, keras.callbacks.History)
    assert list(map(type, own)) == list(kinds) and "Samples" in type(samples).__name__
    assert len(running.callbacks(parsed(), run, [], None)) == 1


def test_an_error_is_an_exit_with_its_sentence(running):
    with pytest.raises(SystemExit) as exit, running.errors_as_exits():
        raise FileNotFoundError("a.tsv: no such file.")
    assert exit.value.code == "a.tsv: no such file."
    with pytest.raises(ZeroDivisionError), running.errors_as_exits():
        raise ZeroDivisionError  # a mistake of ours keeps its traceback


def test_a_corpus_has_no_vocabulary_of_another_kind(running):
    given = types.SimpleNamespace(fine_tuning=types.SimpleNamespace(init_from="gpt2.keras"))
    with pytest.raises(ValueError, match="gpt2.keras has another kind of vocabulary"):
        running.check_initial_vocabulary(given, [], [object()])
    running.check_initial_vocabulary(given, [], None)
