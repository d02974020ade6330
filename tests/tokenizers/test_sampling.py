"""Random segmentations: their probabilities, by hand and over all segmentations."""

import itertools
import math
import random
from collections import Counter

import pytest
import sentencepiece

from keras_transformer import train_tokenizer
from keras_transformer.tokenizers.processor import make_processor
from keras_transformer.tokenizers.sampling import (
    BPEDropout,
    UnigramSampler,
    make_sampler,
    sample_part,
)

PARTS = [["", "ir", "un"], ["nation", "relat", "believ", "happen"], ["", "s", "al", "ing", "able"]]
WORDS = list(map("".join, itertools.product(*PARTS)))
TEXTS = [" ".join(WORDS[number::7]) for number in range(7)] * 5


def processor_of(model_type, texts=TEXTS, size=40):
    return make_processor(train_tokenizer(texts, size, model_type).proto)


class Draws:
    """A generator that draws what it is given: 0 leaves a merge out, 1 keeps it."""

    def __init__(self, draws):
        self.draws = list(draws)

    def random(self):
        return self.draws.pop(0)


@pytest.mark.parametrize(
    "draws, pieces",
    [  # of "ab" first, then of "_x", then, if there is "ab", of "abc"
        ((1, 1, 1), "_x abc"),
        ((1, 1, 0), "_x ab c"),
        ((1, 0, 1), "_ x abc"),
        ((1, 0, 0), "_ x ab c"),
        ((0, 1), "_x a b c"),
        ((0, 0), "_ x a b c"),
    ],
)
def test_bpe_dropout_by_hand(draws, pieces):
    processor = processor_of("bpe", ["abc"] * 9 + ["xab"] * 9 + ["xabc"] * 3, 13)
    merges = [processor.id_to_piece(id).replace("\u2581", "_") for id in range(4, 8)]
    assert merges == ["ab", "_x", "abc", "_abc"]
    sampler, generator = make_sampler(processor), Draws(draws)
    assert type(sampler) is BPEDropout
    for _ in range(2):  # the second time from what is remembered
        generator.draws = list(draws)
        ids = sampler.sample("xabc", 0.5, generator)
        assert [processor.id_to_piece(id).replace("\u2581", "_") for id in ids] == pieces.split()
        assert not generator.draws


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_a_unigram_segmentation_has_a_probability_in_proportion_to_its_own_to_the_power_of_alpha(
    alpha,
):
    processor = processor_of("unigram")
    sampler = make_sampler(processor)
    assert type(sampler) is UnigramSampler
    word = "\u2581relatingsable"
    weights = {}
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        ends = [n for n, cut in enumerate(cuts, 1) if cut] + [len(word)]
        parts = [word[start:end] for start, end in itertools.pairwise([0, *ends])]
        ids = [processor.piece_to_id(part) for part in parts]
        if 1 not in ids:
            weights[tuple(ids)] = math.exp(alpha * sum(map(processor.get_score, ids)))
    number, generator = 4000, random.Random(5)
    counts = Counter(
        tuple(sampler.sample("relatingsable", alpha, generator)) for _ in range(number)
    )
    assert len(weights) > 5 and counts.keys() <= weights.keys()
    total = sum(weights.values())
    for ids, weight in weights.items():
        expected = weight / total
        margin = 5 * math.sqrt(expected * (1 - expected) / number) + 1e-3
        assert abs(counts[ids] / number - expected) < margin


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_what_is_drawn_is_distributed_as_in_sentencepiece(model_type):
    processor = processor_of(model_type)
    number, alpha = 3000, 0.2
    text = "irrelatingsable nations?? of  unbelievable"
    ours = Counter(map(tuple, sample_part(processor, [text] * number, alpha, 3, 0)))
    options = dict(enable_sampling=True, alpha=alpha, nbest_size=-1, num_threads=1)

    def drawn_by_sentencepiece(seed):
        sentencepiece.set_random_generator_seed(seed)  # of the thread that it begins
        return Counter(map(tuple, processor.encode([text] * number, **options)))

    theirs, others = map(drawn_by_sentencepiece, (1, 2))

    def distance(one, other):
        return sum(abs(one[ids] - other[ids]) for ids in one | other) / 2 / number

    assert distance(ours, theirs) < 1.1 * distance(theirs, others) + 0.03
    assert len(ours) > 10


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_run_of_unknown_characters_draws_as_one_of_them(model_type):
    processor = processor_of(model_type)
    texts = ["\u0436\u0436\u0436 nations", "un\u0436\u0436believable", *TEXTS]
    read = processor.decode(processor.encode(texts))  # as a prepared corpus has them
    assert read != texts
    assert sample_part(processor, texts, 0.3, 1, 0) == sample_part(processor, read, 0.3, 1, 0)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_what_is_remembered_is_bounded_and_changes_no_draw(monkeypatch, model_type):
    processor = processor_of(model_type)
    texts = TEXTS * 3
    plain = sample_part(processor, texts, 0.3, 1, 0)
    monkeypatch.setattr("keras_transformer.tokenizers.sampling.MOST_NODES", 10)
    assert sample_part(processor, texts, 0.3, 1, 0) == plain
    # Nothing is remembered.
    monkeypatch.setattr("keras_transformer.tokenizers.sampling.LONG", 0)
    assert sample_part(processor, texts, 0.3, 1, 0) == plain
