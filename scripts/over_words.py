"""What the scripts of models over words share: options, vocabulary, batches and sizes."""

import command_line
import line_by_line

import keras_transformer as kt
from keras_transformer.models.words import FREE


def add_options(parser):
    """Sizes of the encoder, and what is done to words."""
    add = command_line.add_model_options(parser)
    characters = "of a longer word its first and last are read (16)"
    add("--max-characters", type=int, default=16, metavar="N", help=characters)
    least = "words seen less often are read by their characters alone (1)"
    add("--min-count", type=int, default=1, metavar="N", help=least)
    small = "how large word vectors begin; small: a rare word is read by its characters (1)"
    add("--word-stddev", type=float, default=1.0, metavar="S", help=small)
    command_line.add_training_options(parser, "words")


def add_start_options(parser):
    """What a tagger and a classifier do to learn from few words."""
    add = parser.add_argument_group("words").add_argument
    rare = "a word seen c times is forgotten with probability A / (A + c), each time anew (1)"
    add("--forget", type=float, default=1.0, metavar="A", help=rare)
    start = "a .keras file of pretrain_words.py: its words, its sizes and what it learnt"
    add("--start-from", metavar="MODEL", help=start)


def vocabulary(sentences, args):
    """The words of the training data, or those of --start-from; and its model, or None."""
    if getattr(args, "start_from", None):
        filler = line_by_line.load(args.start_from, "MaskFiller")
        return filler.vocabulary, filler.model
    learnt = kt.WordVocabulary.learn(sentences, args.min_count, args.max_characters)
    return learnt, None


def batches(args, vocabulary, sentences, labels, train=False):
    """Batches of words with their labels; words to train on are forgotten by --forget."""
    words, characters = vocabulary.encode(sentences)
    budget = dict(batch_size=args.batch_size, tokens_per_batch=args.tokens_per_batch)

    def redraw(epoch):
        return kt.forget_words(words, args.forget, (args.seed, epoch)), characters, labels

    if not train:
        return kt.WordBatches(words, characters, labels, shuffle=False, **budget)
    redraw = redraw if args.forget else None
    return kt.WordBatches(words, characters, labels, seed=args.seed, redraw=redraw, **budget)


def model(kind, args, vocabulary, num_labels, start=None):
    """A model of that kind over the vocabulary; with `start`, of its sizes and weights."""
    sizes = {**command_line.sizes(args), "word_stddev": args.word_stddev}
    if start is not None:
        sizes = {n: v if n in FREE else start.get_config()[n] for n, v in sizes.items()}
    built = kind(
        vocabulary.num_words,
        vocabulary.num_characters,
        num_labels,
        vocabulary.max_characters,
        **sizes,
    )
    if start is not None:
        built.start_from(start)
    return built
