r"""Trains one of the models that come with the package, and measures it for its model card.

  python scripts/build_pretrained.py dates
  python scripts/build_pretrained.py shakespeare --train input.txt
  python scripts/build_pretrained.py zh-en --pairs train.tsv --valid-pairs dev.tsv

It runs the training script with the recipe of the model (hours for all three on two cores; repeat
the command to continue an interrupted one), stores the weights in float16, scores that very file,
and writes it to keras_transformer/tasks/pretrained/, with the scores at the end of its card.

input.txt is Tiny Shakespeare; a pairs file has English in its first column, Chinese in its second.
"""

import start_up

import argparse
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import keras_transformer as kt
from keras_transformer import data, evaluation, interchange
from keras_transformer.atomic import atomic_write, write_text
from keras_transformer.cli.parser import option_names
from keras_transformer.cli.streams import standard_streams
from keras_transformer.tasks import pretrained

SCRIPTS = pathlib.Path(__file__).parent
RECIPES = {
    "dates": "train_translation.py --recipe dates --no-rotary --dropout 0.1 --epochs 7",
    "shakespeare": "train_language_model.py --recipe characters --optimizer adam --schedule cosine",
    "zh-en": "train_translation.py --recipe small --sides 2 1 --separate-vocabularies"
    " --vocabulary-size 4000 --tokens-per-batch 2048 --learning-rate 3e-3 --epochs 40"
    " --diversify 0 --threads 1 --no-rotary --optimizer adam --schedule cosine --average 4",
}
DATA = {"dates": [], "shakespeare": ["train"], "zh-en": ["pairs", "valid_pairs"]}
MEASURED = "## Measured\n"
BAR = r"\|"  # within a table


@standard_streams()
def main():
    start_up.imported()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=RECIPES, help="model to build")
    parser.add_argument("--train", metavar="FILE", help="shakespeare: the text")
    parser.add_argument("--pairs", metavar="FILE", help="zh-en: pairs to train on")
    parser.add_argument("--valid-pairs", metavar="FILE", help="zh-en: pairs to score")
    options = parser.parse_args()
    try:
        option_names(sys.argv[1:])
    except ValueError as error:
        parser.error(f"{error}")
    for name in DATA[options.name]:
        if getattr(options, name) is None:
            parser.error(f"{options.name} needs --{name.replace('_', '-')}.")

    run = pathlib.Path("runs/pretrained") / options.name
    train(options, run)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "halves" / "model.keras"
        interchange.export(kt.load(run / "model.keras"), file.parent, "keras", "float16")
        rows = SCORES[options.name](kt.load(file), options)
        path = pretrained.FOLDER / f"{options.name}.keras"
        with atomic_write(path) as unfinished:
            shutil.copyfile(file, unfinished)
    write_card(path, run, rows)
    print(f"{path} is built; its card is {path.with_suffix('.md')}.")


def train(options, run):
    """Runs the training script; a run that has ended refuses other data and options."""
    script, *recipe = shlex.split(RECIPES[options.name])
    files = [(f"--{name.replace('_', '-')}", getattr(options, name)) for name in DATA[options.name]]
    command = [sys.executable, SCRIPTS / script, *recipe, "--output", run]
    command += [part for option in files for part in option]
    command += ["--resume"] if (run / "settings.json").exists() else []
    if code := subprocess.run(list(map(str, command))).returncode:
        sys.exit(code)


def score_dates(translator, options):
    test = data.dates().test
    exact = evaluation.exact_match(translator.translate(test.source), test.target)
    return {f"exact match on {len(test.source):,} test dates, greedy": f"{exact:.2%}"}


def score_shakespeare(generator, options):
    text = data.read_text(options.train)
    texts = [text[len(text) * 9 // 10 :]]
    rows = {}
    for name, overlap in (("adjacent chunks", 0.0), ("chunks that overlap by half", 0.5)):
        (score,) = generator.score(texts, overlap)
        rows[f"validation (the last tenth), nats per character, {name}"] = (
            f"{score.nats / score.tokens:.3f}"
        )
    return rows


def score_zh_en(translator, options):
    valid = data.read_pairs(options.valid_pairs, 2, 1)
    translations = translator.translate(valid.source)
    return {
        f"sacreBLEU, {len(translations):,} validation pairs": evaluation.bleu(
            translations, valid.target
        ),
        "chrF": evaluation.chrf(translations, valid.target),
    }


SCORES = {"dates": score_dates, "shakespeare": score_shakespeare, "zh-en": score_zh_en}


def write_card(path, run, rows):
    """Replaces what follows the heading "Measured" in the model card."""
    card = path.with_suffix(".md")
    settings = json.loads((run / "settings.json").read_text("utf-8"))
    summary = kt.check_file(path)
    versions = ", ".join(f"{name} {version}" for name, version in settings["versions"].items())
    table = {
        "parameters": f"{summary.parameters:,}",
        "file, weights in float16": f"{path.stat().st_size / 1e6:.2f} MB",
        **rows,
        "trained": f"{settings['started'][:10]}, {settings['machine']}, {versions}",
        "by": f"`python scripts/{RECIPES[path.stem]}`",
    }
    text = card.read_text("utf-8").partition(MEASURED)[0]
    lines = [f"| {name} | {str(value).replace('|', BAR)} |" for name, value in table.items()]
    write_text(card, "\n".join([f"{text}{MEASURED}", "| | |", "|---|---|", *lines, ""]))


if __name__ == "__main__":
    main()
