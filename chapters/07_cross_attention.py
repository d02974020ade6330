# %% [markdown]
# # 7 · Cross-attention aligns
#
# **How does a decoder know which word of the source to translate next?** Let's build a small
# cross-attention, make up a language pair whose alignment we know, train a tiny translator on it,
# and compare where it looks with where it should; then we shuffle what it looks at, and take it
# away. Run time: about 40 s.
#
# *In plain words:* the encoder leaves one vector for every word of the source on a shelf. For each
# word that it writes, the decoder walks along the shelf and takes what it needs. Where it stops is
# an alignment that nobody has shown it.
#
# *Paper: section 3.2.3, first point, and Figure 1, right. Géron: chapter 16, "Attention Mechanisms"
# (whose alignment model is the ancestor of this) and "Attention Is All You Need: The Original
# Transformer Architecture". Articles: 003, section 五 (five), and 000.*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather
from keras_transformer import plots

keras.utils.set_random_seed(7)
rng = np.random.default_rng(7)
PADDING, UNKNOWN, START, END = range(4)  # START and END are written <s> and </s>


def array(tensor):
    return ops.convert_to_numpy(tensor)


# %% [markdown]
# ## Two sources
#
# The formula is that of self-attention. Only the matrices come from elsewhere: queries from the
# decoder, keys and values from the memory, which is what the encoder made of the source.
#
# $$\mathrm{Attention}(Q_{decoder}, K_{memory}, V_{memory}),\qquad
#   \text{weights of shape } (\text{target}, \text{source})$$
#
# Let five target tokens look at three source tokens, by hand with the kernels of the package's
# layer and then with the layer:

# %%
y, memory = rng.normal(size=(1, 5, 16)), rng.normal(size=(1, 3, 16))
cross_attention = kt.MultiHeadAttention(num_heads=1)
output, weights = (array(x) for x in cross_attention(y, memory, return_attention_scores=True))

W_q, W_k, W_v, W_o = (
    array(getattr(cross_attention, name).kernel)
    for name in ("query", "key", "value", "output_projection")
)
Q, K, V = y[0] @ W_q, memory[0] @ W_k, memory[0] @ W_v  # the biases of a new layer are 0
exponentials = np.exp(Q @ K.T / np.sqrt(16))
by_hand = exponentials / exponentials.sum(axis=1, keepdims=True)
print("Q", Q.shape, " K", K.shape, " weights", by_hand.shape, " output", output[0].shape)
assert by_hand.shape == (5, 3)
np.testing.assert_allclose(weights[0, 0], by_hand, atol=1e-5)
np.testing.assert_allclose(output[0], by_hand @ V @ W_o, atol=1e-5)

# %% [markdown]
# One output for each target token, as wide as the decoder is; the source's length is gone. Two
# facts about the memory follow from a sum over its rows. Shuffle the rows and nothing changes:
# cross-attention sees a bag of vectors, and what it knows of their order is what the positional
# encoding wrote into them. Allow no row and nothing arrives:

# %%
order = [2, 0, 1]
shuffled, moved = cross_attention(y, memory[:, order], return_attention_scores=True)
np.testing.assert_allclose(array(shuffled), output, atol=1e-5)
np.testing.assert_allclose(array(moved), weights[..., order], atol=1e-5)
cut_off = array(cross_attention(y, memory, attention_mask=np.zeros((1, 1, 3), bool)))
print(f"memory shuffled: the output moves by {np.abs(array(shuffled) - output).max():.0e}")
print(f"memory cut off: the largest number in the output is {np.abs(cut_off).max()}")
assert np.abs(cut_off).max() == 0

# %% [markdown]
# ## A language pair with a known alignment
#
# Article 003 has two examples: 我爱苹果 → I love apples, and 那天雨很大 → It rained heavily that
# day. The language of our small translator has both (`weather.py`, in the folder of the chapters,
# is its grammar). In Chinese the day stands first or second, and the adverb before the verb; in
# English both come last. With each pair come the links: which source word each target word is for.
# "It" has none, since no word of 雨很大 says it. (And, for later, how improbable the pair was.)

# %%
for _ in range(6):
    source, target, links, _ = weather.draw(rng)
    print(" ".join(source), "→", " ".join(target), " links:", *(f"{i}-{j}" for i, j in links))

# %% [markdown]
# The article's two sentences are not for training, and neither are those of 300 more draws (a few
# come twice): none of their sources is among those of training. (`kt.TranslationBatches` also puts
# `</s>` after each source: one more row of the memory.)

# %%
ARTICLE = [
    (
        "那天 雨 很大".split(),
        "It rained heavily that day".split(),
        [(1, 1), (2, 2), (3, 0), (4, 0)],
    ),
    ("我 爱 苹果".split(), "I love apples".split(), [(0, 0), (1, 1), (2, 2)]),
]

# %%
test = {" ".join(pair[0]): pair for pair in (weather.draw(rng) for _ in range(300))}
test |= {" ".join(source): (source, target, links, np.nan) for source, target, links in ARTICLE}
drawn = [weather.draw(rng) for _ in range(4000)]
train = [pair for pair in drawn if " ".join(pair[0]) not in test]
test = list(test.values())

# one vocabulary for each side; the ids 0 to 3 are special
source_ids, target_ids = (
    {word: 4 + i for i, word in enumerate(sorted({w for pair in train for w in pair[side]}))}
    for side in (0, 1)
)


def batches(pairs, size, read=True, shuffle=False):
    """Ids in batches; without `read`, each source is empty."""
    sources = [[source_ids[word] for word in pair[0]] if read else [] for pair in pairs]
    targets = [[target_ids[word] for word in pair[1]] for pair in pairs]
    return kt.TranslationBatches(
        sources, targets, batch_size=size, num_buckets=1, multiple=8, shuffle=shuffle
    )


print(
    f"{len(train)} pairs to train on, {len(test)} others; {len(source_ids)} Chinese words and "
    f"{len(target_ids)} English; shapes {batches(train, 128).shapes}"
)

# %% [markdown]
# ## A translator that must look for itself
#
# Let's first leave the encoder's blocks out: the memory is the source's embeddings and positions,
# each row one word and nothing else. One decoder block with one head has to fetch all it needs.
# (`kt.Transformer` is the same assembly, but always with an encoder; the learning rate that rises
# and falls is chapter 10's.) `kt.attention_scores` (chapter 6) shows where it looks.


# %%
def translator(encoder_blocks, decoder_blocks, num_heads, d_model=32):
    """A model from ids to logits, to be trained."""
    source = keras.Input((None,), dtype="int32", name="source_ids")
    target = keras.Input((None,), dtype="int32", name="target_ids")
    mask = kt.padding_mask(source)
    memory = kt.TokenEmbedding(4 + len(source_ids), d_model)(source)
    memory = kt.PositionalEncoding()(memory)
    if encoder_blocks:
        encoder = kt.Encoder(encoder_blocks, num_heads=num_heads, d_ff=64)
        memory = encoder(memory, attention_mask=mask)
    embed = kt.TokenEmbedding(4 + len(target_ids), d_model)
    y = kt.PositionalEncoding()(embed(target))
    decoder = kt.Decoder(decoder_blocks, num_heads=num_heads, d_ff=64, name="decoder")
    y = decoder(y, memory, cross_attention_mask=mask)
    logits = embed(y, reverse=True)  # from vectors to logits, by the same matrix: chapter 9
    model = keras.Model({"source_ids": source, "target_ids": target}, logits)
    model.compile(
        kt.paper_optimizer(kt.WarmupSchedule.with_peak(1e-2, warmup_steps=50)),
        kt.TokenCrossEntropy(),
        weighted_metrics=[kt.TokenAccuracy()],
    )
    return model


# %% [markdown]
# Two helpers read a model: where it looks, and how many of the next words it has right.


# %%
def looks(model, inputs):
    """Weights of the cross-attention of the first block: (batch, head, target, source)."""
    return array(kt.attention_scores(model, inputs)["decoder/block_1/cross_attention"])


def read(model):
    """Of all of `test`: the share of next words that are right, those predicted, the weights."""
    predicted = model.predict(inputs, batch_size=len(test), verbose=0).argmax(axis=-1)
    return (predicted == labels)[labels != PADDING].mean(), predicted, looks(model, inputs)


((inputs, labels),) = batches(test, len(test))  # all of it is one batch
model = translator(encoder_blocks=0, decoder_blocks=1, num_heads=1)
*_, untrained = read(model)  # the weights alone
with_source = model.fit(
    batches(train, 128, shuffle=True), epochs=12, shuffle=False, verbose=0
).history["loss"]
accuracy, predicted, weights = read(model)
print(f"{accuracy:.1%} of the next words right, in sentences never seen")
assert accuracy > 0.97

# %% [markdown]
# If every next word is right given the right words before it, *greedy* decoding, which always takes
# the most probable word (chapter 11), writes the whole sentence. The article's two come out whole:

# %%
english = {i: word for word, i in target_ids.items()} | {END: "</s>"}
for row, (source, target, *_) in zip(predicted[-2:], test[-2:], strict=True):
    written = [english.get(int(i), "?") for i in row[: len(target) + 1]]
    print("".join(source), "→", " ".join(written))
    assert written == [*target, "</s>"]

# %% [markdown]
# ## Does it look where it should?
#
# Row $i$ of the weights is where the decoder looks while it writes target word $i$. Count how often
# the largest weight is at the linked source word. For comparison: a source word picked at random,
# the diagonal (word $i$ looks at word $i$), and the model before training. One word is counted
# separately: in this language "that" is always followed by "day", so "day" needs no look.


# %%
def aligned(weights, free=False):
    """Share of linked words whose largest weight is at their source word."""
    hits = [
        weights[n, i].argmax() == j
        for n, (_, target, links, _) in enumerate(test)
        for i, j in links
        if (target[i] == "day" and target[i - 1] == "that") == free
    ]
    return np.mean(hits)


chance = np.mean([1 / (len(source) + 1) for source, _, links, _ in test for _ in links])
diagonal = np.mean([i == j for _, _, links, _ in test for i, j in links])
print(f"picked at random {chance:.2f}, diagonal {diagonal:.2f}")
print(
    f"untrained {aligned(untrained[:, 0]):.2f}, trained {aligned(weights[:, 0]):.2f}; "
    f"'day' after 'that' {aligned(weights[:, 0], free=True):.2f}"
)
assert aligned(weights[:, 0]) > 0.8 > 0.4 > max(chance, diagonal, aligned(untrained[:, 0]))

# %%
# extra code – the article's sentences, known links ringed
GLOSSES = {"那天": "that day", "雨": "rain", "很大": "very big"}
GLOSSES |= {"我": "I", "爱": "love", "苹果": "apple", "</s>": "end"}
for n, name in ((-2, "07_it_rained"), (-1, "07_i_love_apples")):
    source, target, links, _ = test[n]
    source = [figures.glossed(word, GLOSSES[word]) for word in source] + ["</s>"]
    target = [*target, "</s>"]
    seen = weights[n, 0, : len(target), : len(source)]
    figures.show(figures.plot_alignment(seen, source, target, links), name)

# %% [markdown]
# Nobody showed the model which word belongs to which. The weights were free to be anything, and
# translating made them an alignment.
#
# ## What does "It" look at?
#
# One can read (article 003): while the decoder writes "It", the query comes from the context of
# "It", and it may look at 那天 most. Two remarks. First, this context is what has been written: not
# "It", but `<s>` alone, and so in a decoder of one block it is the *same* query in every sentence.
# Give one source two different translations, and the first row does not move:

# %%
source, (n_rained, n_love) = inputs["source_ids"][-2], (-2, -1)
twice = {
    "source_ids": np.stack([source, source]),
    "target_ids": inputs["target_ids"][[n_rained, n_love]],
}
rows = looks(model, twice)[:, 0]
gaps = np.abs(rows[0] - rows[1]).max(axis=-1)
later = gaps[1:].max()
print(f"rows of 'It …' and 'I …' differ by {gaps[0]:.0e} in row 0, later by up to {later:.2f}")
assert gaps[0] < 1e-6 < 0.01 < later

# %% [markdown]
# Second, where it looks can be measured, over all the unseen sentences about the weather that name
# a day of the past.
#
# *Predict before you run:* which source word gets most of the weight while it writes "It": the day,
# the sky (雨, 雪, ...), the degree (很大, ...), or `</s>`?


# %%
def where_it_looks(weights):
    """Mean weight of each kind of source word in the row that writes 'It'."""
    kinds = {"the day": weather.DAYS | weather.PAST, "sky": weather.SKY}
    kinds |= {"degree": weather.DEGREES, "adverb": weather.ADVERBS, "</s>": ["</s>"]}
    totals = dict.fromkeys(kinds, 0.0)
    past = weather.PAST.keys()
    rows = [n for n, pair in enumerate(test) if pair[1][0] == "It" and {*pair[0]} & past]
    for n in rows:
        for word, weight in zip([*test[n][0], "</s>"], weights[n, 0], strict=False):
            kind = next(kind for kind, words in kinds.items() if word in words)
            totals[kind] += weight / len(rows)
    return totals


it = where_it_looks(weights[:, 0])
print(", ".join(f"{kind} {weight:.2f}" for kind, weight in it.items()))
assert it["the day"] < 0.25 and it["sky"] + it["degree"] > 0.5

# %% [markdown]
# Not at the day, although here a past day would give it away: only sentences about the weather have
# one. It looks at the weather itself: here at 雨, after another start perhaps at 很大. What the
# model *needs* is another question than where it looks, and can be asked. Is the day needed for
# "It"? (The third of these sentences is not in the language: what a model makes of it depends on
# its start.)

# %%
variants = ["那天 雨 很大", "雨 很大", "那天 我 爱 苹果", "我 爱 苹果"]
((asked, _),) = batches([(words.split(), ["It"]) for words in variants], len(variants))
first = array(ops.softmax(model.predict(asked, verbose=0)[:, 0]))[:, target_ids["It"]]
for words, probability in zip(variants, first, strict=True):
    print(f"{probability:.3f} is the probability of 'It' first in the translation of {words}")
assert min(first[:2]) > 0.9 and first[3] < 0.1

# %% [markdown]
# ## With an encoder, and several heads
#
# Now the paper's arrangement: an encoder makes the memory, and the decoder looks at it with several
# heads. It translates equally well. But a row of the memory has become a mixture of words, a word
# may be fetched from where the encoder has copied it to (`</s>`, say), and what four heads do
# together, no single head needs to show:

# %%
whole = translator(encoder_blocks=1, decoder_blocks=1, num_heads=4)
whole.fit(batches(train, 128, shuffle=True), epochs=8, shuffle=False, verbose=0)
whole_accuracy, _, whole_weights = read(whole)
heads = whole_weights.swapaxes(0, 1)  # (head, sentence, target, source)
by_head, mean = [aligned(head) for head in heads], heads.mean(axis=0)
print(f"{whole_accuracy:.1%} of the next words right; aligned:", end=" ")
print("heads", np.round(by_head, 2), f"their mean {aligned(mean):.2f}")
it = where_it_looks(mean)
print("'It' looks at", ", ".join(f"{kind} {weight:.2f}" for kind, weight in it.items()))
assert whole_accuracy > 0.97 and it["the day"] < 0.35
assert np.mean(by_head) < aligned(weights[:, 0]) - 0.05

# %%
# extra code – all four heads on the first sentence
source, target, links, _ = test[-2]
source = [figures.glossed(word, GLOSSES[word]) for word in source] + ["</s>"]
seen = {"decoder": heads[:, -2, : len(target) + 1, : len(source)]}
figure = plots.plot_attention(seen, source, [*target, "</s>"], row_label=plots.BEING_WRITTEN)
figures.show(figure, "07_heads")

# %% [markdown]
# A picture of one head of such a model shows what that head read, not which word made the model
# write what it wrote. (`Translator.attention` returns these weights as `kt.AttentionMaps`; now we
# know what to make of them.)
#
# ## Closed doors
#
# Without cross-attention, one reads (article 003), the decoder would be 闭门造车, building a cart
# behind closed doors, and make things up. *Break it:* let's close the doors on the trained model,
# first by giving each sentence the source of another, then an empty source, `</s>` alone; and then
# continue its training without one, as the language model that a decoder without memory is. How
# good can that get? We made the sentences, so we know: each draw costs the logarithm of the number
# of choices. (These are not the sentences of chapter 3, where it was 1.47.)

# %%
translating = model.get_weights()
# test[:-2] leaves out the article's two, which were not drawn
floor = sum(nats for *_, nats in test[:-2]) / sum(len(target) + 1 for _, target, *_ in test[:-2])
unseen = test[:-2]
((given, answers),) = batches(unseen, len(unseen))
losses = {"its own source": model.evaluate(given, answers, batch_size=len(unseen), verbose=0)[0]}
given["source_ids"] = np.roll(given["source_ids"], 1, axis=0)
losses["another's source"] = model.evaluate(given, answers, batch_size=len(unseen), verbose=0)[0]
closed = batches(unseen, len(unseen), read=False)
losses["no source"] = model.evaluate(closed, verbose=0)[0]
without_source = model.fit(
    batches(train, 128, read=False, shuffle=True), epochs=10, shuffle=False, verbose=0
).history["loss"]
losses["no source, trained further"] = model.evaluate(closed, verbose=0)[0]
for doors, loss in losses.items():
    print(f"{loss:6.3f} nats per token with {doors}")
print(f"{floor:6.3f} is the least possible without the source")
blind = losses["no source, trained further"]
assert losses["its own source"] < 0.2 and floor - 0.05 < blind < floor + 0.4
assert min(losses["another's source"], losses["no source"]) > 2 * blind

# %%
# extra code – the loss, with and without the source
figure, panel = figures.panels(width=5.5)
epochs = np.arange(1, 23)
panel.plot(epochs[:12], with_source, "o-", color=figures.BLUE, label="with the source")
panel.plot(epochs[12:], without_source, "s-", color=figures.ORANGE, label="doors closed")
panel.axhline(floor, ls="--", color=figures.BLACK, label="least possible without the source")
panel.set(xlabel="epoch", ylabel="loss (nats per token)", ylim=(0, 3))
panel.legend()
figures.show(figure, "07_closed_doors")

# %% [markdown]
# A translator that is cut off does much worse than one that has learned to do without a source: it
# still acts on what it reads there, a lone `</s>`. The other decoder does make up fluent
# sentences, and no training can bring it below the floor.
#
# ## What we have so far
#
# Now our translator gets the paper's three attentions. The Chinese leaves the line for a row of its
# own: the encoder's self-attention makes the memory, the decoder's masked self-attention reads what
# is written, and cross-attention fetches from the memory. Between them stands nothing yet:


# %%
def small_translator(ids):
    embed, mask = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32), kt.padding_mask(ids["source_ids"])
    x = kt.PositionalEncoding()(embed(ids["source_ids"]))
    memory = kt.MultiHeadAttention(num_heads=4)(x, x, attention_mask=mask)
    y = kt.PositionalEncoding()(embed(ids["target_ids"]))
    y = kt.MultiHeadAttention(num_heads=4)(y, y, use_causal_mask=True)
    y = kt.MultiHeadAttention(num_heads=4)(y, memory, attention_mask=mask)
    return keras.layers.Dense(weather.VOCABULARY_SIZE)(y)


so_far, _ = weather.train(small_translator, weather.two_rows)
print(f"three attentions: {min(so_far):.3f} to {max(so_far):.3f} nats per token")
assert sorted(so_far)[1] > 0.01  # two of three starts

# %%
# extra code – the picture that grows
figures.show(weather.picture(7, three=so_far), "07_so_far")

# %% [markdown]
# A surprise: the paper's three attentions are worse than the one of chapter 5. Attentions in a row
# are mixtures of mixtures: each hands on what it has found, not what it was given, so that a word
# is lost on the way unless a head keeps it. What the paper puts around each of its attentions is
# the remedy, and the subject of the next chapter.
#
# ## Exercises
#
# 1. Shuffle the words of each source. Does the translator without an encoder mind?
# 2. How many weights does one head have for a source of 100 tokens and a target of 20, in each of
#    the model's three attentions?
# 3. Take the weights of those four heads and for each word the *largest* of the four. Is that a
#    better alignment than that of the average head?
#
# ## Answers
#
# 1. Where two persons meet, yes: who awaits whom stands in the order alone (chapter 5). Elsewhere
#    less: its cross-attention sees a bag of words, each with its position, and most of them mean
#    the same wherever they stand. But some now stand where training never showed them.

# %%
model.set_weights(translating)
mixed = inputs["source_ids"].copy()
for row, (source, *_) in zip(mixed, test, strict=True):
    row[: len(source)] = rng.permutation(row[: len(source)])
logits = model.predict(inputs | {"source_ids": mixed}, batch_size=len(test), verbose=0)
hits, real = logits.argmax(axis=-1) == labels, labels != PADDING
meet = np.array([sum(word in weather.OBJECTS for word in source) == 2 for source, *_ in test])
of_meetings, of_others = (hits[rows][real[rows]].mean() for rows in (meet, ~meet))
print(
    f"shuffled: {of_meetings:.1%} of the next words right where two meet, {of_others:.1%} elsewhere"
)
assert of_meetings < of_others - 0.05

# %% [markdown]
# 2. In the encoder 100 · 100, in the decoder 20 · 20 (half of them masked), in between 20 · 100.

# %%
y, memory = rng.normal(size=(1, 20, 16)), rng.normal(size=(1, 100, 16))
_, weights = cross_attention(y, memory, return_attention_scores=True)
assert weights.shape == (1, 1, 20, 100) and ops.size(weights) == 2_000

# %% [markdown]
# 3. Yes: a head that does not look at the right word is rarely the most certain.

# %%
surest = aligned(heads.max(axis=0))
print(f"the largest of four {surest:.2f}, the average head {np.mean(by_head):.2f}")
assert surest > np.mean(by_head)

# %%
# extra code – the numbers of the gallery
figures.record(aligned_above=0.8, others_below=0.4, the_day_below=0.25)  # as asserted above
figures.record(0.2, so_far_least=min(so_far), so_far_most=max(so_far))

# %% [markdown]
# ## In short
#
# - Cross-attention takes queries from the decoder, keys and values from the memory; the order of
#   the memory's rows does not matter to it.
# - In a model with one head and no encoder the weights become the alignment; with an encoder and
#   several heads a picture of one head shows less.
# - The query that writes a word comes from the words written before it, not from the word itself.
#
# **Try it**: `keras-transformer serve dates` shows where a trained translator looks while it
# writes a date, at `http://localhost:8000/#model=dates&view=attention` ([A
# server](../docs/serving.md#the-page)).
#
# **Next**: between the attentions stand two more boxes. [Chapter
# 8](08_add_norm_and_feed_forward.py) opens them.
