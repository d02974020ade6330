"""Pretrain an encoder of words: it learns to fill in masked ones, as BERT did.

    python scripts/pretrain_words.py
    python scripts/pretrain_words.py --train news.txt.gz --output runs/words
    python scripts/pretrain_words.py --train train.conllu --output runs/words

Without data it reads generated sentences; a text file has a sentence or more a line; of a treebank
(.conllu, .conllu.gz) it reads the words only. What it leaves, a tagger or a classifier starts from:

    python scripts/train_tagger.py --train train.conllu --start-from runs/words/model.keras

The run folder then holds model.keras, history.csv, settings.json, scores.json and
learning_curve.png. Killed? The same command with --resume goes on.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend.
"""

import command_line
import over_words
from recipes import PRETRAINING

import keras_transformer as kt
from keras_transformer import corpora, training


def main():
    with command_line.errors_as_exits():
        args = parse_arguments()
        run = training.Run(args.output, args.resume, args.overwrite)
        command_line.set_up(args)
        train_words, valid_words = load(args)
        filler, train, valid = prepare(args, train_words, valid_words)
        model = command_line.compile_model(filler.model, args, train)
        run.begin(vars(args), train_words)  # nothing is written before all of it fits together

    print(train.summary())
    filler.model.summary()
    watched = training.Samples(lambda: samples(filler, valid_words))
    command_line.fit(run, model, train, valid, args, [watched])
    filler.save(run.folder / "model.keras")

    evaluated = model.evaluate(valid, verbose=0, return_dict=True)
    print(
        f"Perplexity of the masked words of the validation set: {evaluated['perplexity']:.2f}; "
        f"{evaluated['token_accuracy']:.2%} filled in as they were"
    )
    run.write_scores({"split": "validation", **evaluated})
    run.draw_learning_curve()
    print(f"The run is in {run.folder}. Try: python scripts/predict.py {run.folder}/model.keras")


def load(args):
    """Sentences as lists of words, to train on and to watch."""
    if args.train:
        train, valid = (read(path) for path in (args.train, args.valid))
    elif args.valid:
        raise ValueError("Nothing to train on: give --train.")
    else:
        train, valid, _ = (split.words for split in corpora.tagged_sentences(seed=args.seed))
    return (train, valid) if valid else command_line.held_out(train, "sentences", "--valid")


def read(path):
    if path is None:
        return None
    if path.removesuffix(".gz").endswith(".conllu"):
        return corpora.read_conllu(path, "FORM").words
    return [words for line in corpora.read_lines(path) if (words := kt.split_words(line))]


def prepare(args, train, valid):
    """The mask filler, not yet trained, and what it is trained on and watched by."""
    vocabulary, _ = over_words.vocabulary(train, args)
    budget = dict(batch_size=args.batch_size, tokens_per_batch=args.tokens_per_batch)

    def masked(sentences, *seed):
        return kt.mask_words(*sentences, args.mask_rate, (args.seed, *seed))

    read = vocabulary.encode(train)
    batches = kt.WordBatches(
        *masked(read), seed=args.seed, redraw=lambda epoch: masked(read, 1, epoch), **budget
    )
    watched = kt.WordBatches(*masked(vocabulary.encode(valid), 2), shuffle=False, **budget)
    model = over_words.model(kt.TaggingModel, args, vocabulary, vocabulary.num_words)
    return kt.MaskFiller(model, vocabulary), batches, watched


def samples(filler, sentences):
    """What it fills in for the middle word of three sentences."""
    lines = []
    for words in training.spread([words for words in sentences if len(words) > 4], 3):
        middle = len(words) // 2
        text = " ".join([*words[:middle], kt.words.MASKED, *words[middle + 1 :]])
        said = ", ".join(f"{each.label} {each.probability:.2f}" for each in filler.fill([text])[0])
        lines.append(f"  {text}\n    {words[middle]}: {said}")
    return "\n".join(lines)


def parse_arguments():
    """The options of this script among those that all have."""
    parser = command_line.new_parser(__doc__, PRETRAINING, "words", "runs/words")
    add = parser.add_argument_group("data (none given: generated sentences)").add_argument
    add("--train", metavar="FILE", help="text, a sentence or more a line, or .conllu, or .gz")
    add("--valid", metavar="FILE", help="to watch; none: 2 %% of the training sentences")
    add("--mask-rate", type=float, default=0.15, metavar="P", help="share that is hidden (0.15)")
    over_words.add_options(parser)
    return command_line.parse(parser, PRETRAINING, lambda args: "words")


if __name__ == "__main__":
    main()
