# %% [markdown]
# # 16 · Tokenization
#
# **What does a Transformer read: characters, words, or something in between, and who decides?**
# Let's do byte-pair encoding by hand on ten words, find the same pieces with SentencePiece, count
# what a vocabulary costs and saves on real text, and see what becomes of Chinese, which has no
# spaces. (British spelling: tokenisation.) Run time: about 5 s.
#
# *In plain words:* a model keeps one vector for each thing that it can read. With letters the rows
# are few, but texts are long; with words, texts are short, but some words it has never met. Pieces,
# also called subwords, are the compromise: frequent words stay whole, rare ones fall apart into
# parts that are known.
#
# *Paper: section 5.1 ("byte-pair encoding", 37,000 tokens). Géron: chapter 16, "Generating
# Shakespearean Text" (characters) and "Sentiment Analysis" (subwords). Articles: none; all five
# take words for granted.*

# %%
import itertools
from collections import Counter

import numpy as np

import figures
import keras_transformer as kt

rng = np.random.default_rng(16)

# %% [markdown]
# ## Byte-pair encoding, by hand
#
# Ten words, each with the number of times it was seen. Every word starts as its letters, with ▁ for
# the space in front. Then, repeatedly: count all pairs of neighbors, and merge the most frequent
# pair wherever it stands (Sennrich et al. 2016). That is the whole algorithm:

# %%
seen = {"night": 30, "nights": 8, "light": 26, "lights": 7, "bright": 17}
seen |= {"brighter": 4, "tonight": 13, "moonlight": 5, "moon": 11, "sun": 21}


def neighbors(words):
    """How often each pair of neighbors occurs."""
    pairs = Counter()
    for pieces, count in words.items():
        for pair in itertools.pairwise(pieces):
            pairs[pair] += count
    return pairs


def merged(pieces, pair):
    """The pieces with each occurrence of the pair as one."""
    result = []
    for piece in pieces:
        if result and (result[-1], piece) == pair:
            result[-1] += piece
        else:
            result.append(piece)
    return tuple(result)


words, merges = {tuple("▁" + word): count for word, count in seen.items()}, []
for _ in range(13):
    (pair, count), (_, second) = neighbors(words).most_common(2)
    merges.append(pair)
    words = {merged(pieces, pair): n for pieces, n in words.items()}
    print(f"{len(merges):2}. {pair[0]} + {pair[1]}: {count} times (the next pair {second})")
print(*("|".join(pieces) for pieces in words))

# %% [markdown]
# *ight* is found within three steps, since most of the words have it; *night* and *light* become
# whole, *moonlight* stays in pieces. To read a new word, replay the merges in the order in which
# they were learned:


# %%
def encode(word):
    pieces = tuple("▁" + word)
    for pair in merges:
        pieces = merged(pieces, pair)
    return list(pieces)


for word in ("night", "sunlight", "brightest", "insight"):
    print(f"{word}: {'|'.join(encode(word))}")
assert encode("night") == ["▁night"] and "ight" in "|".join(encode("insight"))
assert all("".join(encode(word)) == "▁" + word for word in [*seen, "insight", "brightest"])

# %% [markdown]
# No word is unknown as long as its letters are known, and nothing is lost: the pieces put together
# are the word.
#
# ## The same with SentencePiece
#
# The package leaves this to SentencePiece. `kt.train_tokenizer` gets the ten words as text, each as
# often as it was seen, and may make as many pieces as we did, after four special ids (padding,
# unknown, start and end: chapter 10). Does it cut words as we do?

# %%
text = [word for word, count in seen.items() for _ in range(count)]
letters = {letter for word in seen for letter in "▁" + word}
size = 4 + len(letters) + len(merges)
tokenizer = kt.train_tokenizer(text, vocabulary_size=size, model_type="bpe")
for word in (*seen, "sunlight", "moonlights"):
    cut = tokenizer.tokens(tokenizer.encode([word])[0])
    print("|".join(cut), end="  ")
    assert cut == encode(word)
pieces = set(tokenizer.tokens(range(4, size))) - letters
ours = {left + right for left, right in merges}
print("\npieces of both:", *sorted(pieces & ours), "; only ours:", *sorted(ours - pieces), end="")
print("; only its:", *sorted(pieces - ours))
assert {"ight", "▁night", "▁light", "▁bright", "▁sun"} <= pieces & ours

# %% [markdown]
# It does. (Where two pairs are equally frequent, it may merge another one first: *gh* before *ig*.
# These are steps on the way to *ight*, and no cut ends there.)
#
# So a BPE tokenizer is a list of merges and nothing more; there is no grammar in it.
#
# ## What a vocabulary costs, and what it saves
#
# Now forty of Shakespeare's sonnets (`sonnets.txt`, in the public domain). Every fourth is kept
# aside, to count on text that the vocabulary has not seen.

# %%
sonnets = figures.sonnets()
kept = sonnets[3::4]
known = [sonnet for n, sonnet in enumerate(sonnets) if n % 4 != 3]
lines = [line for sonnet in known for line in sonnet.splitlines()]
new_lines = [line for sonnet in kept for line in sonnet.splitlines()]
characters = sum(map(len, new_lines))
tokenizers = {"char": kt.train_tokenizer(lines, model_type="char")}
for size in (100, 200, 400, 800, 1600):
    tokenizers[f"bpe {size}"] = kt.train_tokenizer(lines, size, model_type="bpe")
lengths = {}
for name, tokenizer in tokenizers.items():
    lengths[name] = sum(map(len, tokenizer.encode(new_lines))) / characters
    shown = "|".join(tokenizer.tokens(tokenizer.encode(["Thou art more lovely"])[0]))
    print(
        f"{name:9} {tokenizer.vocabulary_size():5} ids, {lengths[name]:.2f} tokens per character;"
    )
    print(f"          {shown}")

vocabulary = {word for line in lines for word in kt.split_words(line)}
new_words = [word for line in new_lines for word in kt.split_words(line)]
unknown = np.mean([word not in vocabulary for word in new_words])
per_word = len(new_words) / characters
print(f"words     {len(vocabulary):5} of them, {per_word:.2f} per character; {unknown:.0%} unknown")
shares = [tokenizer.unknown_share(new_lines) for tokenizer in tokenizers.values()]
assert list(lengths.values()) == sorted(lengths.values(), reverse=True)
assert unknown > 0.1 and max(shares) < 0.01

# %% [markdown]
# Attention compares all pairs, so half as many tokens are a quarter of the comparisons (and half of
# all other work). But each id is a row of the embedding, to be learned from the examples that have
# it, and each doubling of the vocabulary saves less than the one before. Words save most, and then
# many words of the sonnets kept aside are unknown.

# %%
# extra code – tokens per character against the number of ids
figure, panel = figures.panels(width=5.5)
ids = [tokenizer.vocabulary_size() for tokenizer in tokenizers.values()]
panel.plot(ids, list(lengths.values()), "o-", color=figures.BLUE, label="characters, then pieces")
panel.plot(len(vocabulary), per_word, "D", color=figures.ORANGE, label="words")
panel.annotate(f"{unknown:.0%} unknown", (len(vocabulary), per_word), (0, 8),
               textcoords="offset points", ha="center")  # fmt: skip
for name in ("char", "bpe 400"):
    at = tokenizers[name].vocabulary_size(), lengths[name]
    example = tokenizers[name].tokens(tokenizers[name].encode(["lovely"])[0])
    panel.annotate("|".join(example), at, (6, 4), textcoords="offset points")
panel.set(xscale="log", xlabel="ids in the vocabulary", ylabel="tokens per character")
panel.set(ylim=(0, 1.1), xlim=(50, 4000))
panel.set_xticks([100, 200, 400, 800, 1600], [100, 200, 400, 800, 1600])
panel.minorticks_off()
panel.legend()
figures.show(figure, "16_vocabulary")

# %% [markdown]
# ## Perplexities of different tokens cannot be compared
#
# A warning, before somebody reads a table. Let's take the plainest model there is, which knows only
# how frequent each token is, and count its perplexity per token, and its nats per character:

# %%
per_token, per_character = {}, {}
for name, tokenizer in tokenizers.items():
    train, test = (
        np.concatenate(tokenizer.encode(side)).astype(int) for side in (lines, new_lines)
    )
    counts = np.bincount(train, minlength=tokenizer.vocabulary_size()) + 1.0  # each once for free
    nats = -np.log(counts / counts.sum())[test].sum()
    per_token[name] = np.exp(nats / len(test))
    per_character[name] = nats / characters
    print(f"{name:9} perplexity {per_token[name]:6.1f} per token;", end=" ")
    print(f"{per_character[name]:.3f} nats per character")
assert per_token["bpe 1600"] > 10 * per_token["char"]
assert per_character["bpe 1600"] < per_character["char"]

# %% [markdown]
# By the token the large vocabulary looks far worse, by the character it is better: a longer piece
# says more at once. Compare nats (or bits) per character, as chapters 14 and 18 do.
#
# ## Many ways to cut a word
#
# The same text can be cut in many ways, and a model that has seen one knows little of the others.
# With `sample=True` each merge is left out with probability `alpha`, so that a model meets a
# sentence in many guises (BPE-dropout, Provilkov et al. 2020). The text stays the same:

# %%
tokenizer, line = tokenizers["bpe 800"], "Shall I compare thee to a summer's day?"
plain = tokenizer.encode([line])
cuts = [tokenizer.encode([line], sample=True, alpha=0.3, seed=seed)[0] for seed in range(20)]
for cut in (plain[0], *cuts[:2]):
    print("|".join(tokenizer.tokens(cut)))
assert tokenizer.decode(cuts) == [line] * 20 and len(set(map(tuple, cuts))) > 15
assert tokenizer.encode([line], sample=True, alpha=0.0) == plain

# %% [markdown]
# ## What it does to Chinese
#
# 那天雨很大 has no spaces, so every piece may reach across words. First, what other vocabularies
# make of it: the sonnets' pieces know none of its characters, and a vocabulary of bytes, which
# knows everything, needs three for each.

# %%
rain = "那天雨很大，他等了很久，水汽打湿了衣服，也没有等到她。"
bytes_only = kt.train_tokenizer([rain], model_type="byte")
(as_bytes,) = bytes_only.encode([rain])
print(f"{len(rain)} characters are {len(as_bytes)} bytes;", end=" ")
print(f"to the sonnets' pieces {tokenizer.unknown_share([rain]):.0%} of it is unknown")
assert bytes_only.decode([as_bytes]) == [rain] and len(as_bytes) >= 3 * len(rain)
assert tokenizer.unknown_share([rain]) > 0.9

# %% [markdown]
# So in bytes Chinese is three times as long as in characters, and English no longer than its
# letters. (GPT-2 merges bytes instead of characters, and so nothing is unknown.) Now
# let's learn pieces from Chinese. We write sentences with words of one to four
# characters, run them together, and ask whether BPE finds our words without a single space:

# %%
TIMES = "今天 昨天 那天 每天 去年 昨晚".split()
SUBJECTS = "我 你 他 她 我们 他们 老师 孩子 朋友 学生".split()
ADVERBS = "也 又 常常 忽然 终于 一直".split()
VERBS = "喜欢 买了 卖了 吃了 等着 画了 看见 没有等到".split()
THINGS = "苹果 面包 衣服 水汽 雨伞 自行车 火车站 图书馆 花 书 鱼 糖".split()
kinds = [TIMES, SUBJECTS, ADVERBS, VERBS, THINGS]
true_words = {word for kind in kinds for word in kind if len(word) > 1}
sentences = ["".join(str(rng.choice(kind)) for kind in kinds) for _ in range(3000)]
one_by_one = kt.train_tokenizer(sentences, model_type="char")
num_characters = one_by_one.vocabulary_size() - 4
print(sentences[0], f"({num_characters} different characters, {len(true_words)} words of several)")

found = {}
for number in (20, 40, 80, 160):  # merges
    bpe = kt.train_tokenizer(sentences, 4 + num_characters + number, model_type="bpe")
    pieces = {piece.strip("▁") for piece in bpe.tokens(range(4, bpe.vocabulary_size()))}
    pieces = {piece for piece in pieces if len(piece) > 1}
    found[number] = pieces
    right = len(pieces & true_words)
    print(f"{number:3} merges: {right} of our {len(true_words)} words, {len(pieces - true_words)}"
          f" other pieces, such as {' '.join(sorted(pieces - true_words)[:6])}")  # fmt: skip
recall = {number: len(pieces & true_words) / len(true_words) for number, pieces in found.items()}
assert recall[40] > 0.8 and len(found[160] - true_words) > len(found[40] - true_words)

# %% [markdown]
# It soon has nearly all of them: two characters that belong together follow each other more often
# than two that do not. Then it goes too far, since words that often follow each other look the same
# to it. It is frequency, not meaning, that makes a piece; for a Transformer that is good enough.
#
# ## Exercises
#
# 1. What is the longest piece that BPE can learn from the ten words, if it may merge as long as any
#    pair is left? How many merges does that take?
# 2. SentencePiece also has a *unigram* vocabulary. Does it cut *brightest* as BPE does? Which of
#    the two has the shorter text of the sonnets kept aside, at 400 ids?
# 3. A vocabulary of characters for the sonnets has fewer than 60 characters. What is an é to it,
#    and what to a vocabulary of bytes?
#
# ## Answers
#
# 1\. After 25 merges every word is one piece, so the longest is the longest word, with its space:

# %%
words, steps = {tuple("▁" + word): count for word, count in seen.items()}, 0
while pairs := neighbors(words):
    words = {merged(pieces, pairs.most_common(1)[0][0]): n for pieces, n in words.items()}
    steps += 1
longest = max((pieces[0] for pieces in words), key=len)
print(f"{steps} merges; the longest piece is {longest}")
assert all(len(pieces) == 1 for pieces in words) and steps == 25
assert len(longest) == 1 + max(map(len, seen))

# %% [markdown]
# 2\. It keeps those pieces that make the text most probable, and cuts each text in the most
# probable way (Kudo 2018), so it need not cut as BPE does, and here it does not. BPE has the
# shorter text:

# %%
unigram = kt.train_tokenizer(lines, 400, model_type="unigram")
for name, tokenizer in (("bpe", tokenizers["bpe 400"]), ("unigram", unigram)):
    number = sum(map(len, tokenizer.encode(new_lines)))
    print(
        f"{name:8} {number} tokens;", "|".join(tokenizer.tokens(tokenizer.encode(["brightest"])[0]))
    )
ratio = number / (lengths["bpe 400"] * characters)
assert 0.8 < ratio < 1.25

# %% [markdown]
# 3\. Unknown to the one, two bytes to the other:

# %%
assert tokenizers["char"].encode(["é"]) == [[kt.UNKNOWN]]
assert len(bytes_only.encode(["é"])[0]) == 2 and bytes_only.decode(bytes_only.encode(["é"])) == [
    "é"
]

# %%
# extra code – the numbers of the gallery
figures.record(char=lengths["char"], bpe_400=lengths["bpe 400"], bpe_1600=lengths["bpe 1600"])
figures.record(
    unknown_words=unknown, recall=recall[40], bytes_per_character=len(as_bytes) / len(rain)
)

# %% [markdown]
# ## In short
#
# - Byte-pair encoding merges the most frequent pair of neighbors, repeatedly; reading replays the
#   merges. No word is unknown whose letters are known, and nothing is lost.
# - More ids make shorter texts and more rows to learn. Compare models of different vocabularies by
#   nats per character, never by perplexity per token.
# - It needs no spaces: in Chinese it finds most words by frequency alone, and some non-words.
#
# **Next**: [chapter 17](17_since_2017.py) keeps the paper's plan and replaces its parts by those of
# today's models.
