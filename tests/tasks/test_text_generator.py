import keras
import numpy as np
import pytest

import keras_transformer as kt
import oracle
from keras_transformer.generation.constraints import NEVER_WRITTEN

PROMPTS = ["the", "a small cat sees the dog", "", "sees the", "I"]
TEXT = "a cat sees it"  # 13 characters


@pytest.fixture(scope="module")
def generator(small_tasks):
    """A window of 8 tokens, each a character, and no END."""
    return small_tasks["generator"]


@pytest.fixture(scope="module")
def with_ends(generator):
    return kt.TextGenerator(generator.model, generator.tokenizer)


def logits_of(generator, ids, length):
    """Of the token after each of START and these ids, in float64; padded to few shapes."""
    read = np.zeros((1, length), "int32")
    read[0, : len(ids) + 1] = [kt.START, *ids]
    logits = generator.model({"token_ids": read})
    return keras.ops.convert_to_numpy(logits)[0, : len(ids) + 1].astype("float64")


def log_p(generator, ids, length=16):
    """Of each of these ids after START and those before, by whole calls."""
    p = oracle.softmax(logits_of(generator, ids[:-1], length))
    return np.log(p[np.arange(len(ids)), ids])


# Writing


@pytest.mark.slow
def test_beyond_its_window_a_text_is_continued_from_the_last_half_of_it(generator):
    answers = generator.generate(PROMPTS, max_tokens=15, temperature=0)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        (ids,) = generator.tokenizer.encode([prompt])
        written, shown = list(ids), list(ids)
        for _ in range(15):
            shown = shown if len(shown) < 8 else shown[-4:]
            logits = logits_of(generator, shown, 8)[-1]
            logits[[*NEVER_WRITTEN, kt.END]] = -np.inf
            written.append(int(logits.argmax()))
            shown = [*shown, written[-1]]
        assert answer == generator.tokenizer.decode([written])[0]
        assert answer.startswith(prompt) and len(answer) == len(prompt) + 15
    assert len({answer[-10:] for answer in answers}) > 2


def test_each_window_begins_with_the_last_half_and_has_random_numbers_of_its_own(generator):
    model = kt.LanguageModel(generator.tokenizer.vocabulary_size(), config=generator.model.config)
    for weight in model.weights:
        weight.assign(keras.ops.zeros(weight.shape))  # every token is as probable as any other
    uniform = kt.TextGenerator(model, generator.tokenizer, window=7, append_end=False)
    contexts, request = [], uniform._request

    def remembered(batch, *rest):
        contexts.extend(list(each.context(7)) for each in batch)
        return request(batch, *rest)

    uniform._request = remembered
    uniform.generate(["a"], max_tokens=18, seed=3)
    (first,) = uniform.tokenizer.encode(["a"])
    assert [len(context) for context in contexts] == [len(first), 3, 3, 3]
    drawn = contexts[1:]  # written at the same positions of a window
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


@pytest.mark.slow
def test_a_sampled_continuation_depends_on_seed_and_number_alone(generator):
    options = dict(max_tokens=12, temperature=2.0)
    together = generator.generate(PROMPTS, seed=1, **options)
    others = ["dog", PROMPTS[1], "a cat and so on", "", PROMPTS[4], "b"]
    beside = generator.generate(others, seed=1, **options)
    assert (beside[1], beside[4]) == (together[1], together[4])
    by_twos = kt.TextGenerator(
        generator.model, generator.tokenizer, window=8, append_end=False, batch_size=2
    )
    assert by_twos.generate(PROMPTS, seed=1, **options) == together
    assert generator.generate(PROMPTS, seed=2, **options) != together
    same = generator.generate(["a"] * 4, seed=1, **options)
    assert len(set(same)) == 4


def test_prompts_may_have_seeds_and_numbers_of_their_own(generator):
    options = dict(max_tokens=12, temperature=2.0)
    one = generator.generate(PROMPTS[:2], seed=1, **options)
    other = generator.generate(PROMPTS[2:4], seed=7, **options)
    mixed = generator.generate(PROMPTS[:4], seed=[1, 1, 7, 7], first=[0, 1, 0, 1], **options)
    assert mixed == one + other
    assert generator.generate(PROMPTS[:4], seed=1, **options)[2:] != other


@pytest.mark.parametrize("options", [dict(temperature=0), dict(seed=3), dict(seed=5, top_k=4)])
def test_the_pieces_of_a_stream_join_to_the_continuation(generator, options):
    prompt, max_tokens = "a small cat sees", 20  # three windows
    (text,) = generator.generate([prompt], max_tokens, **options)
    pieces = list(generator.stream(prompt, max_tokens, **options))
    assert prompt + "".join(pieces) == text and len(pieces) > 10


def test_a_continuation_says_its_tokens_and_whether_it_ended(generator, with_ends):
    options = dict(max_tokens=12, temperature=2.0)
    for each in (generator, with_ends):
        found = [*zip(PROMPTS, each.generate(PROMPTS, **options, return_ends=True), strict=True)]
        assert [end.text for _, end in found] == each.generate(PROMPTS, **options)
        for prompt, end in found:  # each token is a character
            assert end.tokens == len(end.text) - len(prompt)
            assert end.finished == (end.tokens < 12) and (each is with_ends or not end.finished)
        *pieces, end = each.stream(PROMPTS[0], **options, return_ends=True)
        assert end == found[0][1] and PROMPTS[0] + "".join(pieces) == end.text


def test_a_stream_ends_where_its_text_ends(with_ends):
    options = dict(max_tokens=40, temperature=3.0)
    texts = with_ends.generate([""] * 4, seed=[0, 1, 2, 3], first=[0] * 4, **options)
    assert min(map(len, texts)) < 40
    streamed = ["".join(with_ends.stream("", seed=seed, **options)) for seed in range(4)]
    assert streamed == texts


@pytest.mark.slow
def test_sampling_from_one_token_is_greedy_decoding(generator):
    options = dict(max_tokens=10)
    expected = generator.generate(PROMPTS, temperature=0, **options)
    assert generator.generate(PROMPTS, top_k=1, seed=9, **options) == expected
    assert generator.generate(PROMPTS, top_p=1e-6, seed=9, **options) == expected


@pytest.mark.slow
def test_only_texts_with_an_end_are_ended(generator):
    size = generator.tokenizer.vocabulary_size()
    model = kt.LanguageModel(size, num_layers=1, d_model=8, num_heads=1, d_ff=8)
    embeddings = np.random.default_rng(0).normal(size=(size, 8)) / 5
    embeddings[kt.END] = 5  # by far the likeliest, whatever was read
    model.embedding.embeddings.assign(embeddings)
    norm = model.decoder.blocks[-1].feed_forward_add_norm.norm
    norm.set_weights([np.zeros(8), np.ones(8)])
    prompts = ["the dog", "", "a"]
    ending, endless = (
        kt.TextGenerator(model, generator.tokenizer, window=6, append_end=append_end)
        for append_end in (True, False)
    )
    for temperature in (0, 1.0):
        options = dict(max_tokens=9, temperature=temperature)
        assert ending.generate(prompts, **options) == prompts
        answers = endless.generate(prompts, **options)
        written = [answer[len(prompt) :] for answer, prompt in zip(answers, prompts, strict=True)]
        assert [len(text) for text in written] == [9] * 3


def test_a_prompt_is_returned_as_it_was_given(generator):
    prompts = ["the 我爱 dog", "\N{GRINNING FACE}", " two  blanks "]
    answers = generator.generate(prompts, max_tokens=4)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.startswith(prompt) and len(answer) == len(prompt) + 4
    assert generator.generate([]) == []


def test_a_generator_of_texts_is_read_once_as_a_list(generator):
    expected = generator.generate(PROMPTS, max_tokens=4, temperature=0)
    assert generator.generate((p for p in PROMPTS), max_tokens=4, temperature=0) == expected
    scores = generator.score(["the dog", "b"])
    assert generator.score(text for text in ["the dog", "b"]) == scores


# Scores


def test_the_score_of_one_window_is_the_sum_of_the_log_probabilities(with_ends):
    texts = [TEXT, "the dog", "b"]
    scores = with_ends.score(texts)
    for text, score in zip(texts, scores, strict=True):
        ids = [*with_ends.tokenizer.encode([text])[0], kt.END]
        nats = -log_p(with_ends, ids).sum()
        assert score.nats == pytest.approx(nats, rel=1e-4)
        assert (score.tokens, score.characters) == (len(text) + 1, len(text))
        assert score.perplexity == pytest.approx(np.exp(nats / (len(text) + 1)), rel=1e-3)
        assert score.unknown == (text == TEXT)  # it lacks the i, which also costs its code point
        bits = nats / np.log(2) + score.unknown * np.log2(0x110000 - 2048)
        assert score.bits_per_character == pytest.approx(bits / len(text), rel=1e-4)
    assert with_ends.score([]) == []
    diverged = kt.TextScore(8000.0, tokens=10, characters=5)
    assert diverged.perplexity == np.inf


@pytest.mark.parametrize("seed", range(3))
def test_no_unknown_character_is_free(with_ends, seed):
    generator = np.random.default_rng(seed)
    foreign = "".join(generator.choice(list("你好世界мир\u0301🐕"), 40))
    known, unknown, mixed = with_ends.score(["the dog", foreign, "the dog" * 6 + foreign])
    assert (known.unknown, unknown.unknown, mixed.unknown) == (0, 40, 40)
    for score in (known, unknown, mixed):
        rest = score.nats / np.log(2) / score.characters
        share = score.unknown / score.characters
        assert score.bits_per_character == pytest.approx(rest + 20.085 * share, rel=1e-4)


@pytest.mark.parametrize(
    "overlap, windows",
    [
        # first, last, first that counts
        pytest.param(0.5, [(0, 8, 0), (4, 12, 8), (5, 13, 12)], marks=pytest.mark.slow),
        (0.75, [(0, 8, 0), (2, 10, 8), (4, 12, 10), (5, 13, 12)]),
        pytest.param(0.0, [(0, 8, 0), (5, 13, 8)], marks=pytest.mark.slow),
        pytest.param(
            0.99,
            [(0, 8, 0), (1, 9, 8), (2, 10, 9), (3, 11, 10), (4, 12, 11), (5, 13, 12)],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_in_overlapping_windows_each_token_counts_once(generator, overlap, windows):
    (ids,) = generator.tokenizer.encode([TEXT])
    counted = [new for first, last, begin in windows for new in range(begin, last)]
    assert counted == list(range(13))
    nats = -sum(
        log_p(generator, ids[first:last])[new - first :].sum() for first, last, new in windows
    )
    short, score, again = generator.score(["dog", TEXT, TEXT], overlap=overlap)
    assert score.nats == pytest.approx(nats, rel=1e-4) and again == pytest.approx(score, rel=1e-5)
    assert (score.tokens, score.characters) == (13, 13)
    (ids,) = generator.tokenizer.encode(["dog"])
    assert short.nats == pytest.approx(-log_p(generator, ids).sum(), rel=1e-4)


# Files and errors


@pytest.mark.slow
def test_a_saved_generator_writes_and_scores_the_same(generator, tmp_path):
    generator.save(tmp_path / "generator.keras")
    loaded = keras.saving.load_model(tmp_path / "generator.keras")
    assert (loaded.window, loaded.append_end, loaded.batch_size) == (8, False, 64)
    assert loaded.generate(PROMPTS, 12, seed=3) == generator.generate(PROMPTS, 12, seed=3)
    assert loaded.score([TEXT])[0] == pytest.approx(generator.score([TEXT])[0], rel=1e-5)


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda g: g.generate("text"), "list of texts; received one str"),
        (lambda g: g.generate(None), "list of texts; received one NoneType"),
        (lambda g: g.generate(7), "list of texts; received one int"),
        (lambda g: g.generate(["a", 7]), "item 1 is of type int"),
        (lambda g: g.generate(["a"], max_tokens=0), "max_tokens must .* received max_tokens=0"),
        (lambda g: g.generate(["a"], max_tokens=1.5), "max_tokens must .* received max_tokens=1.5"),
        (lambda g: g.generate(["a"], temperature=-1), "temperature must be at least 0"),
        (lambda g: g.generate(["a"], temperature="1"), "temperature must be a finite number"),
        (lambda g: g.generate(["a"], temperature=np.nan), "temperature must be at least 0"),
        (lambda g: g.generate(["a"], top_k=0), "top_k must be an integer of at least 1"),
        (lambda g: g.generate(["a"], top_p=0), "top_p must be above 0"),
        (lambda g: g.generate(["a"], seed=-1), "seed must be an integer of at least 0"),
        (lambda g: g.generate(["a"], seed=[1, 2]), r"seed must be .* one per prompt; .*\[1, 2\]"),
        (lambda g: g.generate(["a"], first=[-1]), "first must be an integer of at least 0"),
        (lambda g: g.stream("a", max_tokens=0), "max_tokens must .* received max_tokens=0"),
        (lambda g: g.stream("a", temperature=-1), "temperature must be at least 0"),
        (lambda g: g.stream("a", seed=-1), "seed must be an integer of at least 0"),
        (lambda g: g.stream(7), "item 0 is of type int"),
        (lambda g: g.score("text"), "list of texts; received one str"),
        (lambda g: g.score(None), "list of texts; received one NoneType"),
        (lambda g: g.score([None]), "item 0 is of type NoneType"),
        (lambda g: g.score(["a", ""]), "Text 1 must have a character to be scored; rec.* text=''"),
        (lambda g: g.score(["a"], overlap=1), r"overlap must be in \[0, 1\); received overlap=1"),
        (
            lambda g: g.score(["a"], overlap="0"),
            r"overlap must be in \[0, 1\); received overlap='0'",
        ),
    ],
)
def test_an_argument_out_of_range_is_named(generator, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(generator)


@pytest.mark.parametrize(
    "size, arguments, message",
    [
        (0, dict(window=1), "window must be an integer of at least 2; received window=1"),
        (0, dict(window=0), "window must be an integer of at least 2; received window=0"),
        (0, dict(window=13), "at most the 12 learned positions; received window=13"),
        (0, dict(batch_size=0), "batch_size must be an integer of at least 1"),
        (1, {}, "The tokenizer must have the .* ids of the model; received vocabulary_size="),
    ],
)
def test_parts_that_do_not_fit_are_refused(generator, size, arguments, message):
    size += generator.tokenizer.vocabulary_size()
    model = kt.LanguageModel(size, num_layers=1, d_model=8, num_heads=1, d_ff=8, max_length=12)
    with pytest.raises(ValueError, match=message):
        kt.TextGenerator(model, generator.tokenizer, **arguments)


def test_the_learned_positions_are_the_window_unless_one_is_given(generator):
    size = generator.tokenizer.vocabulary_size()
    model = kt.LanguageModel(size, num_layers=1, d_model=8, num_heads=1, d_ff=8, max_length=6)
    learned = kt.TextGenerator(model, generator.tokenizer, append_end=False)
    assert learned.window == 6
    (answer,) = learned.generate(["the dog"], 20)
    assert len(answer) == 27
