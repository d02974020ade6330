# %% [markdown]
# # 11 · Decoding, one token at a time
#
# **How does a model that only ranks next tokens write a sentence, and is that sentence the best
# one?** Let's build greedy decoding, the key/value cache, beam search and sampling small, judge
# them by a list of every possible sentence, and compare the package's searches with them. Run time:
# about 30 s.
#
# *In plain words:* the model only says how likely each next word is. To write, somebody has to
# choose: always the best one, several beginnings side by side, or a throw of dice. No choice is
# right for all purposes, and the best sentence may hide behind a weak first word.
#
# *Paper: sections 3.1 ("auto-regressive") and 6.1 (beam 4, length penalty 0.6). Géron: chapter 16,
# "Beam Search" and "Generating Fake Shakespearean Text". Article: 002, "Decoder".*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather
from keras_transformer import backend
from keras_transformer.generation import length_penalty

array = ops.convert_to_numpy
keras.utils.set_random_seed(11)
rng = np.random.default_rng(11)

# %% [markdown]
# ## A model we know everything about
#
# 那天雨很大 ("it rained heavily that day") has more than one translation. Let a table give the
# probability of each word after the last one ("." is END). All its sentences can be listed:

# %%
rain = {
    "START": {"it": 0.6, "heavy": 0.4},
    "it": {"rained": 0.6, "poured": 0.4},
    "rained": {"hard": 0.5, "heavily": 0.35, ".": 0.15},
    "poured": {".": 0.9, "hard": 0.1},
    "heavy": {"rain": 1.0},
    "rain": {".": 0.9, "fell": 0.1},
    **{word: {".": 1.0} for word in ("hard", "heavily", "fell")},
}


def sentences(table):
    """Every sentence and its probability, the most probable first."""
    found, unfinished = {}, [(("START",), 1.0)]
    while unfinished:
        words, p = unfinished.pop()
        for word, q in table[words[-1]].items():
            if word == ".":
                found[" ".join(words[1:])] = p * q
            else:
                unfinished.append(((*words, word), p * q))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


true = sentences(rain)
print(", ".join(f"{p:.3f} {text}" for text, p in true.items()))
np.testing.assert_allclose(sum(true.values()), 1)

# %% [markdown]
# Now a Transformer that learns it, from 1,500 translations in just these shares, and beside it a
# sentence with only one translation, 水汽打湿了衣服 ("the damp soaked the clothes"). (The second
# tokenizer learns pieces, chapter 16; with so few texts each English word becomes one.)

# %%
TEXTS, LONG = ["那天雨很大", "水汽打湿了衣服"], "damp air had soaked all the clothes he wore"
# how many of each sentence, LONG last
counts = [*(round(1500 * p) for p in true.values()), 500]
pairs = np.repeat(TEXTS, [1500, 500]).tolist(), np.repeat([*true, LONG], counts).tolist()
tokenizers = kt.train_tokenizer(pairs[0], model_type="char"), kt.train_tokenizer(pairs[1])
sizes = [tokenizer.vocabulary_size() for tokenizer in tokenizers]
model = kt.Transformer(*sizes, num_layers=1, d_model=32, num_heads=2, d_ff=64, dropout=0.0)
cooling = keras.optimizers.schedules.CosineDecay(0.01, 80)
model.compile(
    kt.paper_optimizer(cooling), kt.TokenCrossEntropy(), jit_compile=backend.prefers_jit()
)


def batches_of(pairs, batch_size, **options):
    ids = [tokenizer.encode(side) for tokenizer, side in zip(tokenizers, pairs, strict=True)]
    return kt.TranslationBatches(*ids, batch_size=batch_size, num_buckets=1, **options)


model.fit(batches_of(pairs, batch_size=200), epochs=8, shuffle=False, verbose=0)

every = TEXTS[:1] * len(true) + TEXTS[1:], [*true, LONG]
learned = {}
for inputs, labels in batches_of(every, batch_size=2, shuffle=False):
    p = ops.softmax(model.predict_on_batch(inputs))
    # at each place, the probability of its label
    of_labels = np.take_along_axis(array(p), labels[..., None], axis=-1)[..., 0]
    p_of_sentence = np.where(labels == kt.PADDING, 1, of_labels).prod(axis=1)
    learned |= zip(tokenizers[1].decode(labels), p_of_sentence, strict=True)
print("learned:", ", ".join(f"{p:.3f} {text}" for text, p in learned.items()))
assert all(abs(learned[text] - true[text]) < 0.04 for text in true) and learned[LONG] > 0.8

# %% [markdown]
# ## Greedy: the best next token, repeatedly
#
# The encoder reads its input at once, the decoder "必须要一个一个地解码" (must decode one by one;
# article 002). Let's do just that: read what is written so far, keep the logits at its end, append
# the best token. (Padding on the right makes it one shape; the look-ahead mask hides it.)

# %%
inputs, _ = batches_of((TEXTS, ["heavy rain", LONG]), batch_size=2, shuffle=False)[0]
source_ids, target_ids = inputs["source_ids"], np.zeros_like(inputs["target_ids"])
target_ids[:, 0] = kt.START
for t in range(10):
    logits = model.predict_on_batch({"source_ids": source_ids, "target_ids": target_ids})
    target_ids[:, t + 1] = logits[:, t].argmax(axis=-1)
written = tokenizers[1].decode(target_ids[:, 1:])
read = sum(t + 1 for t in range(10))  # without the padding
print(f"{written}: {read} tokens of each read, to write ten with END")
assert written == ["it rained hard", LONG] and target_ids[1, 10] == kt.END

# %% [markdown]
# Each pass reads all that is written so far: n(n + 1)/2 tokens, to write n. "One by one" is true of
# writing only: the last of the passes holds the logits of all ten steps (chapter 6). So a known
# sentence is learned, or scored as above, in one.
#
# ## A cache of keys and values
#
# Each pass computed the keys and values of the old tokens again. Let's keep them. In one attention
# a step then projects one token, appends its key and value, and asks one query:
#
# ![A cache of keys and values](../docs/drawings/cache.svg)

# %%
attention = kt.MultiHeadAttention(num_heads=1)
x = rng.normal(size=(1, 10, 16)).astype("float32")
all_at_once = array(attention(x, x, use_causal_mask=True))[0]
projections = (attention.query, attention.key, attention.value, attention.output_projection)
W_Q, W_K, W_V, W_O = (layer.get_weights()[0] for layer in projections)  # the biases begin as 0
keys, values, outputs = [], [], []
for token in x[0]:
    keys.append(token @ W_K)
    values.append(token @ W_V)
    exponentials = np.exp(np.array(keys) @ (token @ W_Q) / np.sqrt(16))
    outputs.append(exponentials / exponentials.sum() @ np.array(values) @ W_O)
print(f"{len(keys)} tokens read; the difference is {np.abs(outputs - all_at_once).max():.0e}")
np.testing.assert_allclose(outputs, all_at_once, atol=1e-5)

# %% [markdown]
# There is no mask in this loop. One reads that the mask hides "尚未解码的部分" (the part not yet
# decoded; article 002); while decoding there is no such part. With two layers it matters
# nevertheless. Layer 2 keeps keys and values of what layer 1 has put out at the old positions, and
# without the mask each new token would change that. The look-ahead mask is what makes a cache
# right:

# %%
another_last = x.copy()
another_last[0, 9] += 1
for causal, low, high in ((False, 0.01, 10), (True, 0, 1e-6)):
    one, other = x, another_last
    for _ in range(2):
        one, other = (attention(each, each, use_causal_mask=causal) for each in (one, other))
    moved = np.abs(array(one - other)[0, :9]).max()
    print(f"look-ahead mask {causal}: another last token moves the nine before it by {moved:.1g}")
    assert low <= moved <= high

# %% [markdown]
# So the package has no second program for decoding. Its `model(inputs)` is
# `model.decode(target_ids, model.encode(source_ids))`, and a step is that same `decode`, called
# with the next token only and a `kt.Cache`: each self-attention writes the token's key and value
# into the next slot and asks all slots that the attention mask allows, here those written so far.
# The keys and values of the memory never change: the cross-attention computes them once. (`memory`
# brings the padding mask of the source along; `positions` says where the token stands.)

# %%
memory = model.encode(source_ids)
of_memory = model.cache_memory(memory)
decoded = model.empty_cache(batch_size=2, num_slots=10)
by_cache = []
for t in range(10):
    cache = kt.Cache(decoded, of_memory, slot=t, positions=np.array([t]))
    so_far = (np.arange(10) <= t)[None, None]  # row t of the look-ahead mask
    next_ids = target_ids[:, t : t + 1]
    by_cache.append(model.decode(next_ids, memory, attention_mask=so_far, cache=cache))
    decoded = cache.decoded
by_cache = np.concatenate([array(each) for each in by_cache], axis=1)
print(f"one token of each read in a step: {np.abs(by_cache - logits[:, :10]).max():.0e} apart")
np.testing.assert_allclose(by_cache, logits[:, :10], atol=1e-4)

# %% [markdown]
# Ten tokens of each are read, not 55. Attention itself does not become free: token t still asks t
# keys. What is saved is everything computed before; the price is memory:

# %%
parts = keras.tree.flatten(model.empty_cache(batch_size=1, num_slots=10))
print("a cache for ten tokens:", " + ".join(str(np.prod(part.shape)) for part in parts), "numbers")
assert sum(np.prod(part.shape) for part in parts) == 2 * 10 * 32  # K and V, tokens, d_model

# %% [markdown]
# ## Beam search
#
# Is what greedy wrote the best? Look at the list: *it rained hard* has 0.180, *heavy rain* 0.360.
# *It* is the better first word because many sentences begin with it; greedy counts them all, but
# can write only one. A beam keeps several beginnings. Each step ranks the extensions of all by
# log-probability; those among the first `beams` that end are put aside as finished, and the best
# `beams` that do not end live on.
#
# ![Beam search with two beams](../docs/drawings/beam_search.svg)
#
# Finished ones are ranked by log-probability over the length penalty of GNMT (Google's translator
# of 2016, before the Transformer). Log-probabilities are negative, so the larger penalty of a
# longer sentence lifts it, which makes up for what each further word costs:
# $\left(\frac{5 + n}{6}\right)^\alpha$ for $n$ tokens, END included.
#
# *Predict before you run:* the list above has every sentence with its probability. Which ones do
# one, two and three beams bring home? (Follow the table with a pencil; $\alpha$ is 0.)


# %%
def extensions(table, beginnings):
    """All beginnings with one word more, the most probable first."""
    longer = [
        (log_p + np.log(p), (*words, word))
        for log_p, words in beginnings
        for word, p in table[words[-1]].items()
    ]
    return sorted(longer, reverse=True)


def beam_search(table, beams, alpha=0.0):
    live, finished = [(0.0, ("START",))], {}
    while live:
        ranked = extensions(table, live)
        for log_p, words in ranked[:beams]:
            if words[-1] == ".":
                finished[" ".join(words[1:-1])] = log_p / length_penalty(len(words) - 1, alpha)
        live = [each for each in ranked if each[1][-1] != "."][:beams]
    return dict(sorted(finished.items(), key=lambda pair: -pair[1])[:beams])


for beams in (1, 2, 3):
    found = ", ".join(f"{true[text]:.3f} {text}" for text in beam_search(rain, beams))
    print(f"{beams} beams: {found}")
assert list(beam_search(rain, 1)) == written[:1]
assert list(beam_search(rain, 2)) == ["heavy rain", "it rained hard"]
assert list(beam_search(rain, 3)) == list(true)[:3]

# %% [markdown]
# One beam, without a length penalty, is greedy decoding; two find the best sentence. Even so, the
# search is not exhaustive: *it poured*, the second best, lost its place to *it rained* when that
# looked better. Three keep it.

# %%
# extra code – the tree, greedy's way and what two beams keep
figure, panel = figures.panels(1, width=7.5, height=3.4)
leaves = sorted(("START", *text.split(), ".") for text in true)
kept = [("START", *text.split(), ".") for text in beam_search(rain, 2)]
for words in {leaf[:k] for leaf in leaves for k in range(1, len(leaf) + 1)}:
    # A beginning stands in the middle of the sentences that it leads to.
    (x0, y0), (x1, y1) = (
        (len(start), -np.mean([i for i, leaf in enumerate(leaves) if leaf[: len(start)] == start]))
        for start in (words[:-1], words)
    )
    on_beam = any(leaf[: len(words)] == words for leaf in kept)
    color, width = (figures.BLUE, 2.5) if on_beam else ("0.6", 1)
    box = dict(boxstyle="round", facecolor="white", edgecolor=color)
    panel.text(x1, y1, words[-1].replace(".", "END"), ha="center", va="center", bbox=box, zorder=3)
    if len(words) > 1:
        panel.plot([x0, x1], [y0, y1], color=color, linewidth=width)
        if kept[1][: len(words)] == words:  # it rained hard
            panel.plot([x0, x1], [y0, y1], "--", color=figures.ORANGE, linewidth=2.5)
        p, back = rain[words[-2]][words[-1]], dict(facecolor="white", edgecolor="none", pad=0.5)
        panel.text((x0 + x1) / 2, (y0 + y1) / 2, f"{p:g}", ha="center", va="center", bbox=back)
    if words[-1] == ".":
        panel.text(x1 + 0.25, y1, f"{true[' '.join(words[1:-1])]:.3f}", va="center")
panel.plot([], [], color=figures.BLUE, linewidth=2.5, label="two beams, what they finish")
panel.plot([], [], "--", color=figures.ORANGE, linewidth=2.5, label="greedy")
panel.legend(loc="upper left")
panel.text(5.1, 0.6, "probability")
panel.set(xticks=range(1, 6), xticklabels=range(5), xlabel="tokens written", yticks=[])
panel.set(xlim=(0.6, 5.7), ylim=(-6.5, 0.9))
panel.spines["left"].set_visible(False)
figures.show(figure, "11_tree")

# %% [markdown]
# `kt.Decoding` runs such a search around a model. It calls two methods of it, `empty_cache` and
# `decode` (and of a model with a source two more, `encode` and `cache_memory`), so the table can be
# its model: a language model, which needs only the last token and so remembers nothing. The search
# must find what our beam of 2 finds, and a beam wider than the list must return all of the list, in
# order. (It is asked without a source, `None`, for at most 6 tokens.)


# %%
class Table:
    """A model for `kt.Decoding` whose next token depends on the last one alone."""

    variables, max_length = (), None  # no weights, no limit

    def __init__(self, table):
        self.tokens = ["<pad>", "<unk>", "START", ".", *[word for word in table if word != "START"]]
        rows = [table.get(token, dict.fromkeys(self.tokens, 1)) for token in self.tokens]
        p = [[row.get(token, 1e-30) for token in self.tokens] for row in rows]  # 1e-30: never
        self.log_p = np.log(p).astype("float32")

    def text(self, ids):
        return " ".join(self.tokens[i] for i in ids if i > kt.END)

    def empty_cache(self, batch_size, num_slots):
        return {}

    def decode(self, ids, memory=None, attention_mask=None, cache=None):
        return ops.take(self.log_p, ids, axis=0)


rain_model = Table(rain)
decoding = kt.Decoding(rain_model)
for beams, alpha in ((2, 0.0), (2, 0.6), (8, 0.0), (8, 0.6), (8, 1.0)):
    found = decoding.beam_search(None, 6, beams, alpha, n_best=min(beams, len(true)))
    of_all = {t: np.log(p) / length_penalty(len(t.split()) + 1, alpha) for t, p in true.items()}
    expected = beam_search(rain, beams, alpha) if beams == 2 else of_all
    expected = sorted(((score, text) for text, score in expected.items()), reverse=True)
    texts = [rain_model.text(ids) for ids in found.ids[0]]
    print(f"{beams} beams, alpha {alpha}:", texts[:2], found.scores[0, :2].round(2))
    assert texts == [text for _, text in expected]
    np.testing.assert_allclose(found.scores[0], [score for score, _ in expected], atol=1e-5)

# %% [markdown]
# Streaming is the greedy loop, stopped after each step to return its token:

# %%
streamed = [rain_model.tokens[ids[0]] for ids in decoding.stream(None, 6)]
print("streamed:", " | ".join(streamed))
assert " ".join(streamed) == "it rained hard ."

# %% [markdown]
# ## Keep finished hypotheses apart
#
# A *hypothesis* is a beginning or a sentence that the search holds. A tempting shortcut has one
# pool for all, and stops once each hypothesis contains an END. Then the finished ones are extended
# past their END, pay for tokens that nobody reads, and are outranked.


# %%
def one_pool(table, beams):
    pool = [(0.0, ("START",))]
    # what follows an END was never trained: here everything is equally likely
    table = table | {".": dict.fromkeys([*table, "."], 1 / (len(table) + 1))}
    while not all("." in words for _, words in pool):
        pool = extensions(table, pool)[:beams]
        print("  pool:", ", ".join(f"{np.exp(s):.3f} {' '.join(words[1:])}" for s, words in pool))
    return " ".join(pool[0][1][1:-1])


assert one_pool(rain, 2) == "it rained hard" != next(iter(beam_search(rain, 2)))

# %% [markdown]
# *Heavy rain* had finished with 0.360; one more token, and it has 0.036.
#
# ## A wider beam can be worse
#
# Each token costs probability, so the short ones lead. In the next table (水汽打湿了衣服)
# the right word has 0.7; else a word is left out (0.2 or a little less), or the sentence ends (0.1
# or a little more).

# %%
words = ["START", *LONG.split(), "."]
table = {
    word: dict(
        zip([*words[i + 1 : i + 3], "."], (0.7, 0.2 - 0.01 * i, 0.1 + 0.01 * i), strict=True)
    )
    for i, word in enumerate(words[:8])
}
table |= {words[8]: {words[9]: 0.9, ".": 0.1}, words[9]: {".": 1.0}}
of_long = sentences(table)
print(f"{len(of_long)} sentences: {of_long[LONG]:.3f} for the whole one;", end=" ")
print("before it:", {text: round(p, 3) for text, p in of_long.items() if p > of_long[LONG]})
assert next(iter(of_long)) == ""
widths = (1, 2, 3, 4, 8)
for alpha, expected in ((0.0, [9, 9, 0, 0, 0]), (0.6, [9] * 5), (1.0, [9] * 5)):
    found = [next(iter(beam_search(table, beams, alpha))) for beams in widths]
    lengths = [len(text.split()) for text in found]
    print(f"alpha {alpha}: {widths} beams write {lengths} words")
    assert lengths == expected and {*found} <= {LONG, ""}

# %% [markdown]
# The most probable translation is the empty one. Greedy and two beams never look at it; three do:
# a better search, a worse translation. It is the model that is wrong about length, and the penalty
# that makes up for it.
#
# ## Sampling
#
# To sample is to draw the next token. The temperature T divides the logits ($p^{1/T}$,
# renormalized), top-k keeps the k best tokens, top-p (nucleus sampling) the fewest that together
# reach p; a `kt.SamplingConfig` has all three. Each changes the table; listing its sentences shows
# how often `kt.Decoding.sample` must write each.


# %%
def changed(table, temperature=1.0, top_k=None, top_p=1.0):
    result = {}
    for word, row in table.items():
        best = sorted(row, key=row.get, reverse=True)[:top_k]
        p = np.array([row[token] for token in best]) ** (1 / temperature)
        p /= p.sum()
        p[np.cumsum(p) - p >= top_p] = 0  # the more probable ones suffice
        result[word] = {token: q for token, q in zip(best, p / p.sum(), strict=True) if q > 0}
    return result


temperatures, shares = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), []
for options in [dict(temperature=T) for T in temperatures] + [dict(top_k=2), dict(top_p=0.8)]:
    expected = sentences(changed(rain, **options))
    ids = decoding.sample(None, np.full(2000, 6), seeds=range(2000), **options)
    drawn = [rain_model.text(row) for row in ids]
    shares.append({text: drawn.count(text) / 2000 for text in true})
    off = max(abs(shares[-1][text] - expected.get(text, 0)) for text in true)
    most = max(true, key=shares[-1].get)
    print(f"{options}: {most!r} {shares[-1][most]:.3f}; all within {off:.3f} of the list")
    assert off < 0.045 and {*drawn} <= {*expected}  # four standard deviations of 2,000 draws
assert shares[0]["it rained hard"] > 0.9 and shares[0]["heavy rain"] < 0.05

# %% [markdown]
# A surprise: cooling (a low temperature) leads to greedy's sentence, not to the most probable one.
# Each draw then takes the best next token, and that is all that greedy does.

# %%
# extra code – share of the sentences against temperature
figure, panel = figures.panels(1, width=5.5)
curve = np.geomspace(0.1, 4, 40)
lists = [sentences(changed(rain, temperature=T)) for T in curve]
colors = (figures.BLUE, figures.GREEN, figures.ORANGE, figures.PURPLE)
for text, color, marker in zip(true, colors, "os^D", strict=False):  # the first four
    panel.plot(curve, [each[text] for each in lists], color=color)
    panel.plot(temperatures, [s[text] for s in shares[:6]], marker, color=color, label=text)
panel.set(xscale="log", xlabel="temperature", ylabel="share of 2,000 samples")
panel.set_xticks(temperatures, [f"{T:g}" for T in temperatures])
panel.minorticks_off()
panel.legend(title="lines: by the softmax")
figures.show(figure, "11_temperature")

# %% [markdown]
# ## The trained model
#
# Back to the Transformer, as a `kt.Translator`. With `beams`, an option of `kt.GenerationConfig`,
# it makes up for greedy's mistake (its length penalty is that of GNMT, with α = 0.6); `n_best` and
# `return_scores` return more than one `kt.Hypothesis`. Its scores were computed step by step with a
# cache in every block, and are those of one pass without:

# %%
translator = kt.Translator(model, *tokenizers, beams=4)
for text, expected in zip(TEXTS, ("heavy rain", LONG), strict=True):
    (found,) = translator.translate([text], n_best=3, return_scores=True)
    print(*found, sep="\n")
    assert found[0].text == expected and found[0].finished
    for each in found[: 3 if text == TEXTS[0] else 1]:
        by_one_pass = np.log(learned[each.text]) / length_penalty(len(each.text.split()) + 1, 0.6)
        assert abs(each.score - by_one_pass) < 1e-3

# %% [markdown]
# Beam search changes nothing for the long sentence: it has most of the probability, so that greedy
# decoding finds it (exercise 1), and the length penalty is not large enough to lift another above
# it.
#
# ## What we have so far
#
# Our translator for the last time, as a `kt.Transformer` with everything that chapters 3 to 10 have
# opened. Let it translate the 300 sentences that it has never seen, with one beam and with four,
# and count those that are right to the last word.

# %%
ours = kt.Transformer(
    weather.VOCABULARY_SIZE, num_layers=2, d_model=32, num_heads=4, d_ff=64, dropout=0.0
)
of_paper = kt.paper_optimizer(kt.WarmupSchedule.with_peak(0.01, warmup_steps=50))
ours.compile(of_paper, kt.TokenCrossEntropy(), jit_compile=backend.prefers_jit())
ours.fit(*weather.two_rows(weather.TRAIN), batch_size=64, epochs=4, verbose=0)


def english(source_ids, beams):
    """The words of the best translation of each source."""
    found = kt.Decoding(ours).beam_search(source_ids, weather.TARGET_LENGTH, beams)
    return [[weather.WORDS[i] for i in ids if i > kt.END] for ids in found.ids[:, 0]]


sources = weather.two_rows(weather.TEST)[0]["source_ids"]
right = {}
for beams in (1, 4):
    pairs_of_words = zip(english(sources, beams), weather.TEST, strict=True)
    right[beams] = np.mean([written == pair[1] for written, pair in pairs_of_words])
    print(f"{beams} beams: {right[beams]:.1%} of {len(sources)} sentences right to the last word")
it_rained = weather.rows(["那天 雨 很大 </s>".split()], weather.SOURCE_LENGTH)
print("那天雨很大:", *english(it_rained, beams=4)[0])
assert min(right.values()) > 0.9

# %%
# extra code – the whole picture
figures.show(weather.picture(11), "11_so_far")

# %% [markdown]
# Here beams have nothing to repair: each source has one translation, and the model is sure of it.
# They pay where there are several, as above. And this is the whole picture: from an average of the
# past to a Transformer, each part with what it has brought in a small language, and not more.
#
# ## Exercises
#
# 1. Prove that greedy decoding finds every sentence with more than half of the probability, and
#    check it on 500 random tables (only later words may follow a word, so that sentences end). How
#    often do greedy and beams miss the best one otherwise?
# 2. From which α on does a wide beam prefer the nine words to none? Check both sides of it.
# 3. Which sentences does sampling with top_k = 1 write, and how often?
#
# *Break it:* decode with the cache, but tell every token that it stands at position 0. Nothing
# complains. Do the logits change?
#
# *An evening:* build a translator of your own, from an empty file.
#
# - Make up a language as `weather.py` does, from words of one that you know, with a rule that no
#   dictionary can follow: an ending that agrees with a word far away, a verb at the end, a particle
#   that stands only after some words.
# - Work out the floor, what is the least possible without the source, before you train anything.
# - Build it up as we did, from the average to the paper's recipe. Write down your guess of each
#   loss first. Which part does your rule wait for?
# - Take Add & Norm out of the model with two blocks. Then the positions. What does it write now?
# - `kt.Translator` makes one file of it and its tokenizers, and `keras-transformer serve` a page.
#   Let somebody else try it on a sentence that you have not thought of.
#
# You have understood the core when your guesses come true, and most when one does not and you find
# out why.
#
# ## Answers
#
# 1. Each beginning of it has more than half of all probability, so its next word has more than
#    half of what its beginning has, and no other word can have as much.

# %%
above, below, missed = 0, 0, {1: 0, 2: 0, 4: 0}
for _ in range(500):
    words = ["START", *"abcdef"]  # each may be followed by END or a later word
    rows = [(".", *words[i + 1 :]) for i in range(7)]
    random = {
        w: dict(zip(row, rng.dirichlet([0.5] * len(row)), strict=True))
        for w, row in zip(words, rows, strict=False)
    }
    best, p = next(iter(sentences(random).items()))
    found = {beams: next(iter(beam_search(random, beams))) for beams in missed}
    above, below = above + (p > 0.5), below + (p <= 0.5)
    assert p <= 0.5 or found[1] == best
    missed = {beams: number + (found[beams] != best) for beams, number in missed.items()}
print(f"{above} above one half, all found; missed of the other {below}, by beams: {missed}")
assert min(above, below) > 30 and missed[4] <= missed[2] < missed[1]

# %% [markdown]
# 2. None is one token, END, of log-probability log 0.1 and penalty 1; nine words are ten tokens
#    with penalty $(15/6)^\alpha$. They are equal where $(15/6)^\alpha$ is the ratio of the two.

# %%
equal = np.log(np.log(of_long[LONG]) / np.log(of_long[""])) / np.log(15 / 6)
found = [next(iter(beam_search(table, 8, equal + off))) for off in (-0.02, 0.02)]
print(f"alpha {equal:.3f}; just below it {found[0]!r}, just above {found[1]!r}")
assert found == ["", LONG]

# %% [markdown]
# 3. Greedy's only, always: one token is left in each row.

# %%
assert sentences(changed(rain, top_k=1)) == {"it rained hard": 1.0}

# %% [markdown]
# *Broken:* they do, from the second token on. Without a cache a token's place is seen from the row
# that it stands in; with one, it has to be told.

# %%
decoded, of_nowhere = model.empty_cache(batch_size=2, num_slots=10), []
for t in range(10):
    cache = kt.Cache(decoded, of_memory, slot=t, positions=np.array([0]))
    so_far = (np.arange(10) <= t)[None, None]
    next_ids = target_ids[:, t : t + 1]
    of_nowhere.append(array(model.decode(next_ids, memory, attention_mask=so_far, cache=cache)))
    decoded = cache.decoded
moved = np.abs(np.concatenate(of_nowhere, axis=1) - by_cache).max(axis=(0, 2))
print("the logits of each step move by", moved.round(1))
assert moved[0] < 1e-4 and moved[1:].max() > 0.1

# %%
# extra code – the numbers of the gallery
figures.record(greedy=true["it rained hard"], best=true["heavy rain"])
figures.record(written=10, read=read)
figures.record(below=below, missed_1=missed[1], missed_2=missed[2], missed_4=missed[4])

# %% [markdown]
# ## In short
#
# - Greedy decoding takes the best next token and can miss the best sentence; a beam misses it less
#   often. Without a length penalty, neither misses a sentence of more than half of the probability.
# - A cache makes each step read one token; the look-ahead mask is what makes it right.
# - A better search does not give a better translation where the model is wrong about length.
#
# **Try it**: `keras-transformer serve dates` shows beam search as a tree whose branches die, at
# `http://localhost:8000/#model=dates&view=beams` ([A server](../docs/serving.md#the-page)).
#
# **Next**: the core route ends here, with a Transformer that reads, learns and writes. [Chapter
# 12](12_convolutions_and_graphs.py) asks what attention has to do with convolutions and graphs.
