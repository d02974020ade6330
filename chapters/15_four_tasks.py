# %% [markdown]
# # 15 · One architecture, four tasks
#
# **What has to change so that the blocks of a translator label words, label a text, or write one?**
# Let's train the same two blocks four times: for a label per word, for one label per text, for
# continuing a text, and for masked words. What changes is what stands before and behind them. The
# data comes from grammars, so we know what is right. (This is a tour of the package, with many of
# its names; none has to be remembered.) Run time: about 50 s.
#
# *In plain words:* the blocks turn rows of vectors into rows of vectors and do not care what for.
# What makes a tagger, a classifier or a writer of them is small: what is read at one end, what is
# asked at the other, and a mask.
#
# *Paper: section 3.1. Géron: chapter 16, "Sentiment Analysis", "Generating Shakespearean
# Text" and "An Avalanche of Transformer Models". Articles: 001, which sorts tasks by what goes in
# and out (N to N, N to 1, N to M), and 002 for encoder and decoder.*

# %%
import sys
import zlib
from collections import Counter

import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
from keras_transformer import backend, data, evaluation, plots

# %% [markdown]
# The grammars are those of the training scripts:

# %%
sys.path.append(str(figures.ROOT / "scripts"))
import generated_english

array = ops.convert_to_numpy
keras.utils.set_random_seed(15)
rng = np.random.default_rng(15)

# %% [markdown]
# All models here have the same two blocks. Their positions are rotary, which means that nothing is
# added to the embeddings: chapter 17 opens that box. All are trained by one recipe.

# %%
SIZES = dict(num_layers=2, d_model=32, num_heads=2, d_ff=64, dropout=0.0, norm_first=True)
SIZES["rotary"] = True  # `positions` is None in such a model


def train(model, batches, epochs, peak=0.01):
    """The recipe of this chapter: a warm-up, then half a cosine; labels of 0 do not count."""
    steps = epochs * len(batches)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 5, warmup_target=peak, warmup_steps=steps // 5
    )
    model.compile(
        kt.paper_optimizer(schedule), kt.TokenCrossEntropy(), jit_compile=backend.prefers_jit()
    )
    return model.fit(batches, epochs=epochs, shuffle=False, verbose=0).history["loss"]


# %% [markdown]
# ## N to N: a label for every word
#
# The sentences of `tagged_sentences` (in `scripts/generated_english.py`) are full of words with
# several tags, and 10 % of their words are invented. We keep those of at most 12 words: one length,
# one shape to compile.


# %%
def short(sentences, number):
    kept = [n for n, words in enumerate(sentences.words) if len(words) <= 12][:number]
    return data.TaggedSentences(*([side[n] for n in kept] for side in sentences))


splits = generated_english.tagged_sentences(num_train=4000, num_valid=0, num_test=1000)
seen, test = short(splits.train, 1536), short(splits.test, 256)
tags = sorted({tag for sentence in seen.tags for tag in sentence})
# longer words keep their first and last letters, 8 in all
vocabulary = kt.WordVocabulary.learn(seen.words, max_characters=8)
word_ids, character_ids = vocabulary.encode(seen.words)
tag_ids = [np.array([1 + tags.index(tag) for tag in sentence]) for sentence in seen.tags]
known = {word for sentence in seen.words for word in sentence}
unseen = Counter(w for sentence in test.words for w in sentence if w not in known)
print(*(f"{word}/{tag}" for word, tag in zip(seen.words[0], seen.tags[0], strict=True)))
print(f"{len(seen.words)} sentences, {vocabulary.num_words} word ids,", end=" ")
print(f"{vocabulary.num_characters} of characters; never seen:", *list(unseen)[:8])

# %% [markdown]
# An unseen word has no vector of its own. But its letters say much: *-ed*, *-ly*, a capital. So
# `kt.WordEmbedding` adds to each word's vector what a small convolution finds in its characters.
# For the model to rely on them, `kt.word_dropout` makes rare words unknown in training: a word seen
# $c$ times, with probability $1 / (1 + c)$, drawn again in each epoch.

# %%
dropped = np.concatenate(kt.word_dropout(word_ids)) == kt.UNKNOWN
count = np.bincount(np.concatenate(word_ids))[np.concatenate(word_ids)]
for c in (1, 2):
    print(f"of words seen {c} times, {dropped[count == c].mean():.2f} are dropped", end="; ")
print(f"of those seen over 50 times, {dropped[count > 50].mean():.3f}")
assert abs(dropped[count == 1].mean() - 1 / 2) < 0.1 > dropped[count > 50].mean()


def resample(epoch):
    return kt.word_dropout(word_ids, seed=epoch), character_ids, tag_ids


batches = kt.WordBatches(
    word_ids, character_ids, tag_ids, batch_size=64, num_buckets=1, resample=resample
)
tagging = kt.TaggingModel(
    vocabulary.num_words, vocabulary.num_characters, 1 + len(tags), max_characters=8, **SIZES
)
train(tagging, batches, epochs=5)
tagger = kt.Tagger(tagging, vocabulary, tags, batch_size=256)
assert tagging.positions is None

# %% [markdown]
# As a baseline, a tagger that knows only words: each word gets its most frequent tag, an unseen
# word the most frequent tag of all.

# %%
frequent = {}
for sentence, right in zip(seen.words, seen.tags, strict=True):
    for word, tag in zip(sentence, right, strict=True):
        frequent.setdefault(word, Counter())[tag] += 1
usual = sum(frequent.values(), Counter())
guessed = [[frequent.get(w, usual).most_common(1)[0][0] for w in words] for words in test.words]
tagged = [[tag for _, tag in sentence] for sentence in tagger.tag(test.words)]
of_words = {}
for name, answers in (("most frequent tag", guessed), ("tagger", tagged)):
    scores = evaluation.tagging_scores(answers, test.tags, test.words, known)
    of_words[name] = scores.accuracy, scores.unseen_accuracy
    print(f"{name:17}: {scores.accuracy:.3f} of {scores.num_words} words,", end=" ")
    print(f"{scores.unseen_accuracy:.3f} of {scores.num_unseen} unseen ones")
assert min(of_words["tagger"]) > 0.9 > of_words["most frequent tag"][0]
assert of_words["most frequent tag"][1] < 0.5

i_saw_a_saw, zilp = tagger.tag(["I saw a saw .", "The zilp zilped a zilp zilply ."])
print(*(f"{word}/{tag}" for word, tag in i_saw_a_saw + zilp))
assert [tag for _, tag in i_saw_a_saw] == "PRON VERB DET NOUN PUNCT".split()
assert len({("zilp", "NOUN"), ("zilped", "VERB"), ("zilply", "ADV")} & set(zilp)) >= 2

# %%
# extra code – which tag it confuses with which
figure = plots.plot_confusion(scores.confusion, list(scores.tags))
figures.show(figure, "15_confusion")

# %% [markdown]
# The sentence of chapter 1 comes out right: the two *saw* have one spelling and one embedding, and
# two tags. What is left of the mistakes, the confusion matrix shows.
#
# ## N to 1: one label for a text
#
# For one label, N vectors have to become one. `kt.Pooling` puts the mean and the maximum of the
# words side by side, and leaves the padding out. By hand:

# %%
h = rng.normal(size=(2, 5, 4)).astype("float32")
length = np.array([5, 3])
there = np.arange(5) < length[:, None]
pooled = array(kt.Pooling()(h, there[:, None]))
for each, words, n in zip(pooled, h, length, strict=True):
    np.testing.assert_allclose(each, [*words[:n].mean(axis=0), *words[:n].max(axis=0)], atol=1e-6)

# %% [markdown]
# That is all that is new. In the reviews of `generated_english.reviews` praise may be negated ("not
# good"), and by "but" or "although" another clause may outweigh it. We take those of up to 14
# words:

# %%
splits = generated_english.reviews(num_train=9000, num_valid=0, num_test=1300)
LABELS = ["negative", "positive"]


def read(reviews, number):
    """Reviews as words, and their labels."""
    words = [kt.split_words(text) for text in reviews.texts]
    kept = [n for n, each in enumerate(words) if len(each) <= 14][:number]
    return [words[n] for n in kept], np.array([LABELS.index(reviews.labels[n]) for n in kept])


(seen, seen_labels), (asked, asked_labels) = read(splits.train, 3072), read(splits.test, 450)
words_of_reviews = kt.WordVocabulary.learn(seen, max_characters=2)  # the least; no names to spell
batches = kt.WordBatches(
    *words_of_reviews.encode(seen), 1 + seen_labels, batch_size=32, num_buckets=1
)
classification = kt.ClassificationModel(
    words_of_reviews.num_words,
    words_of_reviews.num_characters,
    1 + len(LABELS),
    max_characters=2,
    **SIZES,
)
train(classification, batches, epochs=4)
classifier = kt.Classifier(classification, words_of_reviews, LABELS, batch_size=512)

# %% [markdown]
# Against it, a bag of words: each word has a weight, and the sum decides. We solve for the weights
# by ridge regression.


# %%
def bag(sentences):
    """How often each word occurs, (sentences, word ids)."""
    ids, _ = words_of_reviews.encode(sentences)
    return np.array([np.bincount(row, minlength=words_of_reviews.num_words) for row in ids])


counts = bag(seen)
squared = counts.T @ counts + np.eye(counts.shape[1])
weights = np.linalg.solve(squared, counts.T @ (2.0 * seen_labels - 1))
pairs = ["The plot is good.", "The plot is not good."]
pairs += ["The plot is good, but the cast is dull.", "The plot is dull, but the cast is good."]
texts = [text[0].upper() + text[1:] for text in map(" ".join, asked)]
probabilities = classifier.probabilities([*texts, *pairs])
by_model = probabilities[: len(texts)].argmax(axis=-1) == asked_labels
by_bag = (bag(asked) @ weights > 0) == asked_labels
print(f"{len(asked)} reviews: accuracy of the bag {by_bag.mean():.3f},", end=" ")
print(f"of the classifier {by_model.mean():.3f}")
for text, of_labels in zip(pairs, probabilities[len(texts) :], strict=True):
    label = kt.Prediction(LABELS[of_labels.argmax()], of_labels.max())
    in_bag = (bag([kt.split_words(text)]) @ weights)[0]
    print(f"{text:39} bag {in_bag:+.2f}, {label.label} {label.probability:.2f}")
np.testing.assert_array_equal(*(bag([kt.split_words(text)]) for text in pairs[2:]))
assert by_bag.mean() < 0.75 < 0.9 < by_model.mean()
assert [LABELS[n] for n in probabilities[len(texts) :].argmax(axis=-1)] == LABELS[::-1] + LABELS

# %% [markdown]
# The last two have the same words: no bag can distinguish them. Is the model calibrated, that is,
# right as often as its probabilities say? `classifier.classify` returns a `kt.Prediction`, a label
# with its probability; over many answers we can compare that with how many are right.

# %%
sure = evaluation.calibration(probabilities[: len(texts)].max(axis=-1), by_model)
low, high = evaluation.accuracy_interval(by_model.sum(), len(by_model))
print(f"accuracy {low:.3f} to {high:.3f} (95 %); calibration error {sure.error:.3f}")
assert sure.error < 0.08

# %%
# extra code – accuracy against confidence
figures.show(plots.plot_calibration(sure.table), "15_calibration")

# %% [markdown]
# The error is small. But with so few mistakes, and nearly all answers given with a probability near
# 1, it says little about the probabilities in between: look at how few answers lie there.
#
# ## Continuing a text
#
# Chapter 9 has shown that a decoder without an encoder is the same stack under a look-ahead mask.
# So `kt.LanguageModel` has it again, over characters now. `kt.chunks` cuts a long text at different
# points in each epoch, and `kt.TextBatches` shifts it right.

# %%
WINDOW = 32
text = generated_english.grammar_text(4000)
tokenizer = kt.train_tokenizer(text.splitlines(keepends=True), model_type="char")
ids = tokenizer.encode([text])[0]
batches = kt.TextBatches(
    kt.chunks(ids, WINDOW),
    append_end=False,  # a chunk is cut out of a text
    batch_size=64,
    multiple=1,
    resample=lambda epoch: [kt.chunks(ids, WINDOW, 7 * epoch)],
)
inputs, labels = batches[0]
print(text[: text.index("\n", 60)].replace("\n", " / "))
np.testing.assert_array_equal(inputs["token_ids"][:, 1:], labels[:, :-1])
language = kt.LanguageModel(tokenizer.vocabulary_size(), **SIZES)
losses = train(language, batches, epochs=3, peak=0.02)
writer = kt.TextGenerator(language, tokenizer, window=WINDOW, append_end=False, batch_size=512)

# %% [markdown]
# How good can it get? The grammar gives the probability of each of its sentences. The exponential
# of its nats per character is a perplexity that no model can beat on average; `kt.TextScore`, which
# `score` returns, has the model's. It reads the new text in windows that overlap by half.

# %%
new = generated_english.grammar_text(200, seed=1)
score = writer.score([new])[0]
true = np.exp(generated_english.grammar_nats(new))
_, frequencies = np.unique(list(text), return_counts=True)
shares = frequencies / len(text)
by_frequency = np.exp(-(shares * np.log(shares)).sum())
print(f"perplexity of {score.tokens} characters: by frequency {by_frequency:.2f}, model", end=" ")
print(f"{score.perplexity:.3f}, grammar {true:.3f} (in the long run", end=" ")
print(f"{np.exp(generated_english.grammar_entropy()):.3f});", end=" ")
print(f"{score.bits_per_character:.3f} bits per character")
assert true < score.perplexity < 1.3 * true < by_frequency / 5

# %% [markdown]
# Now let it write, the most probable character each time. `generate` keeps the keys and values of
# what it has read, as in chapter 11. (A rotary key is rotated once, at its own place, and can stay
# in the cache.)

# %%
prompts = ["\nthe dogs by the lake ", "\nthis cow ", "\ntwo girls in the park ", "\na shy boy "]
written = writer.generate(prompts, max_tokens=8, temperature=0)
known_words, num_known = set(text.split()), 0
for prompt, line in zip(prompts, written, strict=True):
    continuation = line[len(prompt) :]
    print(prompt.strip(), "|", continuation.replace("\n", " / "))
    num_known += any(word.startswith(continuation.split()[0]) for word in known_words)
assert num_known >= 3  # of 4 first words

# %% [markdown]
# It writes words of the text (the assertion asks for beginnings of such words, and no more). A verb
# that does not fit its subject may still slip in.
#
# ## Masked words
#
# Back to the encoder, which sees both sides. What could it learn from texts that nobody has
# labeled? Chapter 14 hid words from BERT; `kt.mask_words` does it by BERT's rules, and hides the
# letters with the word. With the hidden words as labels, the tagger's model becomes BERT's.

# %%
sentences = [kt.split_words(line) for line in text.splitlines()]
words_of_text = kt.WordVocabulary.learn(sentences, max_characters=2)
plain = words_of_text.encode(sentences)


def masked(seed):
    return kt.mask_words(*plain, rate=0.15, seed=seed)


given, _, answers = masked(0)
before, given, answers = map(np.concatenate, (plain[0], given, answers))
shares = [np.mean(given[answers > 0] == 2), np.mean((given == before)[answers > 0])]  # 2: [MASK]
print(f"{np.mean(answers > 0):.3f} chosen; {shares[0]:.2f} masked, {shares[1]:.2f} as they were")
assert abs(np.mean(answers > 0) - 0.15) < 0.02 and abs(shares[0] - 0.8) < 0.05
assert (given == before)[answers == 0].all()

# %%
batches = kt.WordBatches(
    *masked(0), batch_size=128, num_buckets=1, resample=lambda epoch: masked((1, epoch))
)
sizes_of_text = words_of_text.num_words, words_of_text.num_characters
filling = kt.TaggingModel(*sizes_of_text, words_of_text.num_words, max_characters=2, **SIZES)
train(filling, batches, epochs=24, peak=0.02)
filler = kt.MaskFiller(filling, words_of_text)

nouns = {"see": "dogs cats boys girls cows hens", "sees": "dog cat boy girl cow hen"}
blanks = {
    "the [MASK] see my dog": nouns["see"],
    "the [MASK] sees my dog": nouns["sees"],
    "the hens [MASK] my dog": "see like fear saw liked feared",
    "this hen [MASK] my dog": "sees likes fears saw liked feared",
}
filled = filler.fill(list(blanks), number=8)
for (blank, fitting), answers in zip(blanks.items(), filled, strict=True):
    fits = sum(each.probability for each in answers if each.label in fitting.split())
    print(f"{blank}:", *(f"{each.label} {each.probability:.2f}" for each in answers[:6]), end="; ")
    print(f"all that fit {fits:.2f}")
    assert fits > 0.5  # by chance: 6 of 51 words

# %% [markdown]
# In the first two only the word *after* the blank shows whether one is meant or several. Four
# sentences prove little, so let's ask with three verbs, in both forms, and six objects each: how
# many times as probable are the nouns that fit the verb (all singular, or all plural) as the
# others?

# %%
questions = [
    (f"the [MASK] {verb}{ending} my {thing}", "sees" if ending else "see")
    for verb in ("see", "like", "fear")
    for ending in ("", "s")
    for thing in nouns["sees"].split()
]
factors = []
filled_40 = filler.fill([blank for blank, _ in questions], number=40)
for (_, fitting), answers in zip(questions, filled_40, strict=True):
    of_word = {each.label: each.probability for each in answers}
    of_form = {form: sum(of_word.get(n, 0) for n in nouns[form].split()) for form in nouns}
    other = "see" if fitting == "sees" else "sees"
    factors.append(of_form[fitting] / max(of_form[other], 1e-3))
print(
    f"{len(factors)} blanks: the number that fits is {np.median(factors):.0f} times as probable "
    f"(median; {min(factors):.1f} times at least)"
)
assert np.median(factors) > 3 and min(factors) > 1

# %% [markdown]
# The filler has learned the agreement of subject and verb, from right to left, without a
# single label. A tagger or a classifier may start there: `initialize_from` takes over the embedding
# and the encoder, and leaves the labels to be learned.

# %%
starting = kt.TaggingModel(*sizes_of_text, 1 + len(tags), max_characters=2, **SIZES)
new_labels = starting.get_layer("labels").get_weights()
starting.initialize_from(filling)
for own, of_filler in zip(
    starting.encoder.get_weights(), filling.encoder.get_weights(), strict=True
):
    np.testing.assert_array_equal(own, of_filler)
for own, before in zip(starting.get_layer("labels").get_weights(), new_labels, strict=True):
    np.testing.assert_array_equal(own, before)

# %% [markdown]
# What such a start is worth is a question for real text, of which there is much more without labels
# than with: `scripts/pretrain_words.py` trains a filler, and `scripts/train_tagger.py --init-from`
# a tagger that begins with it.
#
# ## N to M, and what all have in common
#
# That leaves the translator, which has the stack twice: unchanged, and with cross-attention. Are
# they really the same blocks? Let's put the tagger's into a translator.

# %%
translating = kt.Transformer(tokenizer.vocabulary_size(), **SIZES)
stacks = {
    "N to N, tagger": (tagging, tagging.encoder),
    "N to 1, classifier": (classification, classification.encoder),
    "text, language model": (language, language.decoder),
    "masked words, filler": (filling, filling.encoder),
    "N to M, translator": (translating, translating.encoder),
}
for name, (model, stack) in stacks.items():
    total, blocks = model.count_params(), stack.count_params()
    print(f"{name:24} {total:6,} parameters, {blocks:,} of them in this stack")
    assert blocks == tagging.encoder.count_params()
x = rng.normal(size=(1, 6, 32)).astype("float32")
translating.encoder.set_weights(tagging.encoder.get_weights())
np.testing.assert_array_equal(array(translating.encoder(x)), array(tagging.encoder(x)))

# %%
# extra code – four tasks in four panels
figure, panels = figures.panels(2, 2, width=4.0, height=2.7)
words, reviews, characters, blank = panels.flat
clauses = np.array([bool({"but", "although", "Although"} & set(text)) for text in asked])
of_reviews = {
    name: (hits[~clauses].mean(), hits[clauses].mean())
    for name, hits in (("bag of words", by_bag), ("classifier", by_model))
}
styles = dict(color=figures.ORANGE, hatch="//"), dict(color=figures.BLUE)
for panel, shares in ((words, of_words), (reviews, of_reviews)):
    for i, (name, share) in enumerate(shares.items()):
        place = np.arange(2) + 0.35 * (i - 0.5)
        panel.bar(place, share, 0.33, alpha=0.75, ec="white", label=name, **styles[i])
    panel.set(ylabel="accuracy", ylim=(0, 1.05), yticks=[0, 0.5, 1])
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
words.set_title("a label for every word", pad=24)
words.set_xticks(range(2), ["all words", "unseen words"])
reviews.set_title("one label for a text", pad=24)
reviews.set_xticks(range(2), ["one clause judges", "two clauses differ"])
epochs = range(1, 1 + len(losses))
characters.plot(epochs, np.exp(losses), "o-", color=figures.BLUE, label="training")
characters.plot(epochs[-1], score.perplexity, "D", color=figures.BLACK, label="new text")
characters.axhline(true, color=figures.ORANGE, linestyle="--", label="grammar")
characters.set(title="continuing a text", xlabel="epoch", ylabel="perplexity per character")
characters.set_xticks(epochs)
characters.legend()
(text, fitting), answers = next(iter(blanks.items())), filled[0][::-1]
for place, each in enumerate(answers):
    style = styles[each.label in fitting.split()]
    blank.barh(place, each.probability, 0.7, alpha=0.75, ec="white", **style)
blank.set_yticks(range(len(answers)), [each.label for each in answers])
blank.set(title=text.replace("[MASK]", "___"), xlabel="probability")
blank.locator_params(axis="x", nbins=5)
figures.show(figure, "15_four_tasks")

# %% [markdown]
# One stack of 17,152 parameters, five models. The tasks sit at its ends: what is embedded, which
# mask, and what the logits stand for.
#
# ## Exercises
#
# 1. Take the rotation out of the trained tagger's blocks. What becomes of *I saw a saw*?
# 2. A model that predicts is a compressor. How many bits per character does `zlib` need for the
#    text that the language model has scored?
# 3. The tagger has 66,287 parameters, of them 17,152 in the blocks. Where are the others?
#
# ## Answers
#
# 1\. It becomes a set: both *saw* get the same vector, and so the same tag.

# %%
x = tagging.embedding(*(np.array(ids)[:1] for ids in vocabulary.encode(["I saw a saw .".split()])))
for rotary in (True, False):
    stack = kt.Encoder(2, num_heads=2, d_ff=64, norm_first=True, rotary=rotary)
    stack.build(x.shape)
    stack.set_weights(tagging.encoder.get_weights())
    states = array(stack(x))[0]
    print(f"rotary {rotary!s:5}: both saw differ by {np.abs(states[1] - states[3]).max():.0e}")
    assert (np.abs(states[1] - states[3]).max() > 0.1) == rotary

# %% [markdown]
# 2\. Far more: `zlib` finds repeated strings, but knows no grammar (and must learn the words first,
# from this text alone).

# %%
by_zlib = 8 * len(zlib.compress(new.encode(), 9)) / len(new)
of_grammar = generated_english.grammar_nats(new) / np.log(2)
print(f"bits per character: zlib {by_zlib:.2f}, model {score.bits_per_character:.3f},", end=" ")
print(f"grammar {of_grammar:.3f}")
assert by_zlib > 1.5 * score.bits_per_character > 1.5 * of_grammar

# %% [markdown]
# 3\. Most of them in the vectors of its words, many of which are invented and may never come again;
# what helps with the next invented word, the characters and their convolution, is small.

# %%
num_words, num_characters = vocabulary.num_words, vocabulary.num_characters
others = {"words": num_words * 32, "characters": num_characters * 32}
others |= {"convolution": (5 * 32 + 1) * 32, "labels": (32 + 1) * (1 + len(tags))}
print(*(f"{name} {number:,}" for name, number in others.items()), sep=", ")
assert sum(others.values()) == tagging.count_params() - tagging.encoder.count_params()

# %%
# extra code – the numbers of the gallery
figures.record(block_parameters=tagging.encoder.count_params())
baseline = of_words["most frequent tag"]
# As asserted above:
figures.record(tagger_above=0.9, classifier_above=0.9, perplexity_below=1.3, agreement_above=3)
figures.record(0.005, baseline=baseline[0], baseline_unseen=baseline[1], bag=by_bag.mean())
figures.record(true_perplexity=true)

# %% [markdown]
# ## In short
#
# - The same stack, trained once for each, does all four tasks; the embedding, the mask and the
#   meaning of the logits change.
# - Characters help with words that were never seen; order helps where a bag of words cannot.
# - Masked words teach the grammar without labels; a tagger can start from what was learned.
#
# **Next**: what is a "word" here, and who decided? [Chapter 16](16_tokenization.py) cuts text into
# tokens.
