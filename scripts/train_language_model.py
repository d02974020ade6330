"""Train a language model, from nothing: text that goes on, in one .keras file.

Without data it learns generated sentences, whose true entropy is known to compare with:

    python scripts/train_language_model.py

With a text, or with one text a line (--lines), plain or .gz, or with a set of tensorflow-datasets:

    python scripts/train_language_model.py --train input.txt --output runs/shakespeare
    python scripts/train_language_model.py --train names.txt --lines --output runs/names
    python scripts/train_language_model.py --dataset tfds:tiny_shakespeare --download

Of one text, the last tenth is watched and scored, by a whole deterministic pass over it; none of it
is trained on. --vocabulary char, byte, bpe or unigram says what is predicted.
The run folder then holds model.keras, history.csv, settings.json, scores.json, learning_curve.png
and sample.txt. Killed? The same command with --resume goes on.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend.
"""

import math

import command_line
import numpy as np
from recipes import LANGUAGE

import keras_transformer as kt
from keras_transformer import corpora, training
from keras_transformer.writing import write_text


def main():
    with command_line.errors_as_exits():
        args = parse_arguments()
        run = training.Run(args.output, args.resume, args.overwrite)
        command_line.set_up(args)
        splits = load(args)
        generator, train, valid = prepare(args, splits)
        model = command_line.compile_model(generator.model, args, train)
        run.begin(vars(args), splits.train)  # nothing is written before all of it fits together

    print(train.summary())
    generator.model.summary()
    watched = training.Samples(lambda: generator.generate([args.prompt], 100, 0.8)[0])
    command_line.fit(run, model, train, valid, args, [watched])
    generator.save(run.folder / "model.keras")

    # What it learnt.
    split, texts = ("test", splits.test) if splits.test else ("validation", splits.valid)
    scores = {"split": split}
    for name, overlap in (("side_by_side", 0.0), ("overlapping", 0.5)):
        scores[name] = score(generator, texts, overlap)
        if generator.ends:  # then no text is cut into windows
            break
    said = scores[name]
    print(
        f"The {split} set: {said['nats_per_token']:.4f} nats a token, perplexity "
        f"{said['perplexity']:.4f}, {said['bits_per_character']:.4f} bits a character"
    )
    if is_grammar(args):
        true = math.exp(corpora.grammar_nats("".join(f"{text}\n" for text in texts)))
        scores["true_perplexity"] = true
        more = said["perplexity"] / true - 1
        print(f"The true perplexity is {true:.4f}: the model's is {more:.2%} above it.")
    run.write_scores(scores)

    # To look at.
    run.draw_learning_curve()
    (sample,) = generator.generate([args.prompt], 500, 0.8, seed=args.seed)
    write_text(run.folder / "sample.txt", sample + "\n")
    print(f"The run is in {run.folder}. Try: python scripts/predict.py {run.folder}/model.keras")


def score(generator, texts, overlap):
    """Nats a token, perplexity and bits a character of all texts together."""
    scores = generator.score(texts, overlap)
    total = kt.TextScore(*map(sum, zip(*scores)))
    return {
        "nats_per_token": total.nats / total.tokens,
        "perplexity": total.perplexity,
        "bits_per_character": total.bits_per_character,
        "tokens": total.tokens,
        "characters": total.characters,
    }


def load(args):
    """Lists of texts to train on, to watch and to score; the last may be None."""
    if args.dataset:
        name, options = args.dataset.removeprefix("tfds:"), (args.data_dir, args.download)
        splits = corpora.read_text_splits(name, args.feature, *options)
    elif args.train:
        paths = (args.train, args.valid, args.test)
        splits = corpora.Splits(*(path and read(path, args.lines) for path in paths))
    elif args.valid or args.test:
        raise ValueError("Nothing to train on: give --train or --dataset.")
    else:
        texts = (
            corpora.grammar_text(20_000, args.seed),
            corpora.grammar_text(2_000, args.seed + 1),
        )
        return corpora.Splits(*(text.splitlines() for text in texts), None)
    if splits.valid is None:
        splits = splits._replace(**dict(zip(("train", "valid"), parts(splits.train))))
    return splits


def parts(texts):
    """The texts to train on and to watch: of several, 2 %; of one, the last tenth."""
    if len(texts) > 1:
        return command_line.held_out(texts, "texts", "--valid")
    cut = len(texts[0]) * 9 // 10
    return [texts[0][:cut]], [texts[0][cut:]]


def read(path, lines):
    if not lines:
        return [corpora.read_text(path)]
    texts = [line for line in corpora.read_lines(path) if line.strip()]
    if not texts:
        raise ValueError(f"{path}: expected a text a line, received blank lines. Check the file.")
    return texts


def prepare(args, splits):
    """The generator, not yet trained, and what it is trained on and watched by."""
    ends = args.lines or len(splits.train) > 1
    texts = splits.train if ends else splits.train[0].splitlines(keepends=True)
    tokenizer = kt.learn_tokenizer(texts, args.vocabulary_size, args.vocabulary)
    size = tokenizer.vocabulary_size()
    model = kt.LanguageModel(size, **command_line.sizes(args))
    generator = kt.TextGenerator(model, tokenizer, None if ends else args.window, ends)
    budget = dict(batch_size=args.batch_size, tokens_per_batch=args.tokens_per_batch)
    train, valid = (kt.encode(tokenizer, texts) for texts in (splits.train, splits.valid))
    if ends:
        train = kt.TextBatches(train, seed=args.seed, **budget)
        return generator, train, kt.TextBatches(valid, shuffle=False, **budget)

    def redraw(epoch):  # every epoch cuts the text elsewhere
        start = np.random.default_rng((args.seed, epoch)).integers(args.window)
        return [kt.windows(train[0], args.window, start)]

    options = dict(ends=False, multiple=1, **budget)
    cut = kt.TextBatches(redraw(0)[0], seed=args.seed, redraw=redraw, **options)
    return (
        generator,
        cut,
        kt.TextBatches(kt.windows(valid[0], args.window), shuffle=False, **options),
    )


def parse_arguments():
    """The options of this script among those that all have."""
    parser = command_line.new_parser(
        __doc__, LANGUAGE, "grammar / characters with data", "runs/language"
    )
    add = parser.add_argument_group("data (none given: generated sentences)").add_argument
    add("--train", metavar="FILE", help="a text, plain or .gz")
    add("--valid", metavar="FILE", help="to watch; none: the last tenth, or 2 %% of the lines")
    add("--test", metavar="FILE", help="to score at the end; none: the validation set")
    add("--lines", action="store_true", help="each line is a text that begins and ends")
    add("--dataset", metavar="NAME", help="instead of all: tfds:NAME")
    add("--feature", metavar="NAME", help="of the data set: the text (the only one)")
    add("--data-dir", metavar="FOLDER", help="where tensorflow-datasets keeps its sets")
    add("--download", action="store_true", help="fetch the data set if it is not there")
    add("--prompt", default="", metavar="TEXT", help="what samples begin with")

    add = command_line.add_model_options(parser)
    command_line.add_vocabulary_options(add)
    add("--window", type=int, metavar="N", default=64, help="tokens read at once (64)")
    command_line.add_training_options(parser)
    return command_line.parse(
        parser, LANGUAGE, lambda args: "grammar" if is_grammar(args) else "characters"
    )


def is_grammar(args):
    """Whether the command line names no data at all."""
    return not (args.train or args.dataset or args.valid or args.test)


if __name__ == "__main__":
    main()
