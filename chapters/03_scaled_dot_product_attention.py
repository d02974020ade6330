# %% [markdown]
# # 3 · Scaled dot-product attention
#
# **How does one word decide which other words to listen to, and why does it divide by √d_k?** Let's
# ask five words a question that we can answer ourselves, and average a sentence in three ways; then
# build equation 1 of the paper three times (a loop, an `einsum`, the package), break it in the ways
# that circulate, measure what each costs, and begin a small translator. Run time: about 25 s.
#
# *In plain words:* a word asks a question, every word holds up a sign, and the better a sign fits
# the question, the more of that word is taken over. Dividing by √d_k, where d_k is how many numbers
# make up a question, keeps the first impression from deciding everything before anything is
# learned.
#
# *Paper: section 3.2.1, equation 1 and footnote 4. Géron: chapter 16, "Attention Mechanisms" and
# "Multi-head attention". Articles: all five.*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather
from keras_transformer import plots

keras.utils.set_random_seed(3)
rng = np.random.default_rng(3)


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))  # no overflow
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def from_to(numbers, digits):
    return f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f}"


# %% [markdown]
# ## Who did it?
#
# Five words, each with three features that anyone can read: is it a person, an animal, an action?
# And a question, "who did it?", as a vector over the same three features: a person, most of all
# (4); an animal, perhaps (2); no action (0). How well does each word fit? That is a dot product.
# The softmax makes *weights* of these scores: positive numbers that sum to 1.
#
# *Predict before you run:* which word gets the largest weight? And which one gets more, the dog or
# the cat?

# %%
words = ["yesterday", "teacher", "dog", "chased", "cat"]
features = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]])
who_did_it = np.array([4, 2, 0])  # person, animal, action
scores = features @ who_did_it
weights = softmax(scores)
for word, score, weight in zip(words, scores, weights, strict=True):
    print(f"{word:9} score {score}, weight {weight:.2f}")
answer = weights @ features
print("the answer: person {:.2f}, animal {:.2f}, action {:.2f}".format(*answer))
assert words[weights.argmax()] == "teacher" and weights[2] == weights[4]

# %% [markdown]
# The teacher, by far; and the dog exactly as much as the cat, because the question cannot tell who
# chased whom: nothing in the features says where a word stands (chapter 5 adds it). What comes back
# is a mixture of all words by their weights, mostly the teacher. That is attention: a question, a
# score for each word, weights, a mixture. Everything below is about where questions come from.
#
# ## The average of the past, three times
#
# Suppose now that *each* word asks, and that it may look only at itself and at the words before it,
# as when one writes. The simplest mixture is the plain average. Let's write it as a loop, as a
# product with a triangular matrix, and as a softmax of scores that know nothing: equal for the
# past, and $-\infty$ for the future, of which the softmax makes a weight of 0. These weights are
# printed: a row for each word that asks, a column for each that is asked.

# %%
by_loop = np.stack([features[: place + 1].mean(axis=0) for place in range(5)])
triangle = np.tri(5)  # 1 on the diagonal and below it
by_matrix = (triangle / triangle.sum(axis=1, keepdims=True)) @ features
equal_scores = np.where(triangle == 1, 0.0, -np.inf)
by_softmax = softmax(equal_scores) @ features
print(softmax(equal_scores).round(2))
np.testing.assert_allclose(by_matrix, by_loop)
np.testing.assert_allclose(by_softmax, by_loop)

# %% [markdown]
# The third form is the one to remember, for it has a place where content can come in: put scores
# that fit the question in place of the zeros, and each word takes its own mixture instead of the
# average. So:
#
# ## One query, by hand
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^T}{\sqrt{d_k}}\right)V$$
#
# Each word (or *token*: a word, a part of one, a digit) is a vector, and three trained matrices
# make three vectors of it: a *query*, what it asks for; a *key*, by which it is found; a *value*,
# what it hands over. They are the rows of $Q$, $K$ and $V$. There are as many values as keys, but
# the tokens that ask need not be those that answer (chapter 7): below, four queries ask six keys.
# Query and key have one width, $d_k$. (Above, the features were key and value at once. Here we draw
# all three at random.)
#
# Read it for a single query $q$: score every key with a dot product, divided by $\sqrt{d_k}$ (why:
# see below), turn the scores into weights that sum to 1, and take the weighted mean of the values.
# That is a dictionary lookup gone soft: no key has to match exactly, and every value answers a
# little.
#
# ![Scaled dot-product attention of three words](../docs/drawings/attention.svg)


# %%
def attention_of_one(q, keys, values):
    scores = [q @ k / np.sqrt(len(k)) for k in keys]
    weights = softmax(np.array(scores))
    return sum(weight * v for weight, v in zip(weights, values, strict=True))


Q, K, V = rng.normal(size=(4, 8)), rng.normal(size=(6, 8)), rng.normal(size=(6, 3))
by_hand = np.stack([attention_of_one(q, K, V) for q in Q])
print(by_hand.round(3))

# %% [markdown]
# Four queries asked six keys, and each got back three numbers, the width of a *value*, whatever the
# width of queries and keys. Now all queries at once: with `einsum` (`qd,kd->qk` is, for each query
# q and each key k, the sum of the products over d), and then with the package's function:

# %%
weights = softmax(np.einsum("qd,kd->qk", Q, K) / np.sqrt(8))
by_einsum = np.einsum("qk,kv->qv", weights, V)
tensors = [ops.convert_to_tensor(x, "float32") for x in (Q, K, V)]
output, package_weights = kt.scaled_dot_product_attention(*tensors)
errors = [
    np.abs(by_hand - by_einsum).max(),
    np.abs(by_hand - ops.convert_to_numpy(output)).max(),
]
print(f"loop and einsum differ by {errors[0]:.0e}, loop and package by {errors[1]:.0e}")
assert errors[0] < 1e-12 and errors[1] < 1e-6

# %% [markdown]
# Two facts follow from the softmax alone. Each row of weights sums to 1, and so each output is a
# weighted *mean* of the values: it cannot leave the range that the values span.

# %%
rows = weights.sum(axis=-1)
print("rows sum to", rows, "; outputs inside the values' range:", end=" ")
inside = (by_einsum >= V.min(axis=0)) & (by_einsum <= V.max(axis=0))
print(f"{inside.sum()} of {inside.size}")
np.testing.assert_allclose(rows, 1)
np.testing.assert_allclose(ops.convert_to_numpy(package_weights), weights, atol=1e-6)
assert inside.all()

# %% [markdown]
# ## Attention as a matrix: 我 是 谁 ("who am I", word by word "I am who")
#
# Here are the weights of three words, after article 004. Entry (1, 1) is what the first word gives
# to itself; row 谁 says: the new vector of 谁 is 0.2 of 我, 0.1 of 是 and 0.7 of 谁 (the other two
# rows are ours). Let's find scores that give just these rows (a softmax undoes a logarithm) and
# check that the output is that mixture:

# %%
words = ["我", "是", "谁"]
article = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.2, 0.1, 0.7]])
scores = np.log(article)  # any constant may be added to a row: softmax does not see it
np.testing.assert_allclose(softmax(scores + 5.0), article)
values = np.eye(3)  # 我, 是 and 谁 as unit vectors, so that the output shows the mixture
encoded = softmax(scores) @ values
print("entry (1, 1):", article[0, 0], "; 谁 becomes", encoded[2].round(2))
np.testing.assert_allclose(encoded[2], [0.2, 0.1, 0.7])

# %%
# extra code – the matrix as a picture
labels = [figures.glossed(*pair) for pair in zip(words, ["I", "am", "who"], strict=True)]
figure = plots.plot_attention(article, labels, labels)
for (row, column), weight in np.ndenumerate(article):
    color = "white" if weight > 0.5 else figures.BLACK
    figure.axes[0].text(column, row, weight, ha="center", va="center", color=color)
figures.show(figure, "03_matrix")

# %% [markdown]
# One often reads $QK^T$ also as relations between features (article 004). It holds none: the
# product sums over the features, and what is left of vectors of any width is one number for two
# positions. It does not even see which feature is which:

# %%
order = rng.permutation(8)  # the eight features, in another order
np.testing.assert_allclose(Q[:, order] @ K[:, order].T, Q @ K.T, atol=1e-5)

# %% [markdown]
# ## Why divide by √d_k?
#
# The paper's footnote 4: if the components of $q$ and $k$ are independent with mean 0 and variance
# 1, their dot product has mean 0 and variance $d_k$. Let's draw 5,000 pairs for each width, and see
# what the softmax makes of 16 such scores: how much does the best key get?

# %%
widths = [1, 4, 16, 64, 256, 1024]
variances, largest, largest_scaled = [], [], []
for d_k in widths:
    q, k = rng.normal(size=(2, 5000, d_k))
    variances.append((q * k).sum(axis=-1).var())
    queries, keys = rng.normal(size=(500, 1, d_k)), rng.normal(size=(500, 16, d_k))
    scores = (queries @ keys.swapaxes(1, 2))[:, 0]  # (500, 16)
    raw, scaled = softmax(scores), softmax(scores / np.sqrt(d_k))
    largest.append(raw.max(axis=-1).mean())
    largest_scaled.append(scaled.max(axis=-1).mean())
    print(
        f"d_k {d_k:4}: variance {variances[-1]:6.1f}; "
        f"largest weight {largest[-1]:.2f} raw, {largest_scaled[-1]:.2f} scaled"
    )
np.testing.assert_allclose(variances, widths, rtol=0.1)
# np.ptp: the largest less the smallest
assert largest[-1] > 0.9 > 0.5 > largest_scaled[-1] and np.ptp(largest_scaled[1:]) < 0.03

# %% [markdown]
# The variance is $d_k$, as the footnote says. Without the scale one key takes nearly everything,
# before anything is learned; with it, $d_k$ hardly matters any more (the picture stands below the
# box). And where one weight is near 1 and the others near 0, a small change of a score changes
# nothing: the gradient has vanished.
#
# > **For readers who like derivatives.** How much of the gradient does a softmax pass back? Its
# > Jacobian, the matrix of the derivatives of each weight by each score, is
# > $\mathrm{diag}(w) - ww^T$, and all of it vanishes when one weight takes everything. One often
# > reads that the gradient "vanishes or explodes" (article 000). Through the softmax it cannot
# > explode: the norm of the Jacobian is largest, 0.5, where two keys share the weight. But one step
# > further back, at the query, the Jacobian is multiplied by the keys. There both happen, as the
# > cell prints for 500 queries of width 1024, drawn three times: half of them get next to nothing,
# > and the few whose two best keys tie get about $\frac12\sqrt{d_k} = 16$ (four entries of
# > $\pm\frac14$, times two keys that lie $\sqrt{2d_k}$ apart). With the scale all of them get about
# > the same.


# %%
# extra code – the gradient through the softmax, and at the query
def jacobian(weights):
    """d softmax / d scores, one matrix per row."""
    return weights[:, :, None] * np.eye(weights.shape[-1]) - weights[:, :, None] * weights[:, None]


def norm(matrices):
    return np.sqrt((matrices**2).sum(axis=(1, 2)))


half = norm(jacobian(np.array([[0.5, 0.5]])))[0]
assert norm(jacobian(rng.dirichlet(np.full(16, 0.2), size=5000))).max() < half == 0.5
passed, passed_scaled = (norm(jacobian(weights)).mean() for weights in (raw, scaled))
print(f"mean norm of the Jacobian at d_k = 1024: raw {passed:.3f}, scaled {passed_scaled:.3f}")
assert passed < passed_scaled / 4
at_query = {"raw": [], "scaled": []}  # [draw, query]; d_k is the last width
for _ in range(3):
    queries, keys = rng.normal(size=(500, 1, d_k)), rng.normal(size=(500, 16, d_k))
    scores = (queries @ keys.swapaxes(1, 2))[:, 0]
    for name, scale in (("raw", 1), ("scaled", d_k**-0.5)):
        at_query[name].append(norm(scale * jacobian(softmax(scale * scores)) @ keys))
medians, greatest = (
    {name: f(draws, axis=1) for name, draws in at_query.items()} for f in (np.median, np.max)
)
for name in at_query:
    print(f"at the query, {name:6}: median {from_to(medians[name], 4)},", end=" ")
    print(f"largest {from_to(greatest[name], 2)}")
assert max(medians["raw"]) < 0.01 < 0.25 < min(medians["scaled"])
assert min(greatest["raw"]) > 10 > 0.5 > max(greatest["scaled"])

# %%
# extra code – saturation against width
figure, panel = figures.panels(width=5)
panel.plot(widths, largest, "o-", color=figures.ORANGE, label="without the scale")
panel.plot(widths, largest_scaled, "s--", color=figures.BLUE, label="divided by √d_k")
panel.set(xscale="log", xlabel="width of a key, d_k", ylim=(0, 1))
panel.set_xticks(widths, widths)
panel.minorticks_off()
panel.set_ylabel("largest of 16 weights (mean)")
panel.legend()
figures.show(figure, "03_scale")

# %% [markdown]
# ## The scale in the wrong place
#
# *Break it:* let's put the scale elsewhere. A snippet that circulates (article 001; in PyTorch,
# where `bmm` is a matrix product and `permute` transposes) computes
# `nn.Softmax(dim=-1)(torch.bmm(Q,K.permute(0,2,1))) * self._norm_fact`, where the factor is
# $1/\sqrt{d_k}$: it scales the weights instead of the scores. Others divide the scores by $d_k$,
# without the root (article 004). And, a surprise, Keras's own `keras.layers.Attention` does not
# divide at all (`keras.layers.MultiHeadAttention` does). Side by side, for 2,000 queries of width
# 256, drawn three times: what the rows sum to, what the best key gets, and how much of the gradient
# arrives at the query (in the median; the box above computes it):

# %%
d_k = 256
forms = {  # softmax(scores * before) * after; 16 is √256
    "paper: softmax(s / √d_k)": (1 / 16, 1),
    "001: softmax(s) / √d_k": (1, 1 / 16),
    "004: softmax(s / d_k)": (1 / 256, 1),
    "keras.layers.Attention: softmax(s)": (1, 1),
}
curves, totals, gradients = ({name: [] for name in forms} for _ in range(3))
for _ in range(3):
    queries, keys = rng.normal(size=(2_000, 1, d_k)), rng.normal(size=(2_000, 16, d_k))
    scores = (queries @ keys.swapaxes(1, 2))[:, 0]  # (2000, 16)
    for name, (before, after) in forms.items():
        weights = softmax(scores * before)
        curves[name].append(np.sort(after * weights)[:, ::-1].mean(axis=0))  # the best key first
        totals[name].append((after * weights).sum(axis=-1).mean())
        gradients[name].append(np.median(norm(before * after * jacobian(weights) @ keys)))
best = {name: [curve[0] for curve in of_form] for name, of_form in curves.items()}
for name in forms:
    print(
        f"{name:34}  rows sum to {totals[name][0]:.4f}; best key {from_to(best[name], 3)}; "
        f"gradient {from_to(gradients[name], 4)}"
    )

# %%
paper, article_001, article_004, unscaled = forms
np.testing.assert_allclose(list(totals.values()), np.repeat([[1], [1 / 16], [1], [1]], 3, axis=1))
np.testing.assert_allclose(gradients[article_001], np.divide(gradients[unscaled], 16))
assert max(gradients[unscaled]) < 0.75 * min(gradients[paper])
assert min(best[unscaled]) > 0.9 and max(best[article_004]) < 0.075 < 0.23 < min(best[paper])


# %% [markdown]
# Here is the snippet in Keras, next to the paper's; and the fourth form, which is what Keras's
# layer computes:

# %%
query, key = (ops.convert_to_tensor(x, "float32") for x in (queries, keys))
s = ops.matmul(query, ops.swapaxes(key, 1, 2))
in_article = ops.convert_to_numpy(ops.softmax(s) * d_k**-0.5)[:, 0]
in_paper = ops.convert_to_numpy(ops.softmax(s * d_k**-0.5))[:, 0]
_, in_keras = keras.layers.Attention()([query, key, key], return_attention_scores=True)
for name, each in (("article 001", in_article), ("paper", in_paper)):
    print(f"{name:11} rows sum to {each.sum(axis=-1).mean():.4f}")
np.testing.assert_allclose(in_article, softmax(scores) / 16, atol=1e-4)
np.testing.assert_allclose(in_paper, softmax(scores / 16), atol=1e-4)
np.testing.assert_allclose(ops.convert_to_numpy(in_keras)[:, 0], softmax(scores), atol=1e-4)

saturation = np.divide(gradients[paper], gradients[unscaled])
ratio = np.divide(gradients[paper], gradients[article_001])
print(f"the paper's gradient at the query: {from_to(ratio, 0)} times article 001's,", end=" ")
print(f"{from_to(saturation, 1)} times that of the unscaled softmax")
assert min(saturation) > 2.5 and min(ratio) > 40

# %% [markdown]
# After the softmax the factor rescues nothing: weights and gradient are those of the unscaled
# softmax, both of them 16 times smaller. (A constant factor of the gradient means nothing to an
# optimizer such as Adam. What it cannot make good is the saturation, a factor of more than 2.5.)
# Dividing by $d_k$ errs the other way: the best key gets hardly more than 1/16, and attention
# begins as a plain mean.

# %%
# extra code – who gets how much, from the best key to the worst
figure, panels = figures.panels(4, width=2.5, height=2.7)
looks = {
    "paper": figures.BLUE,
    "scaled after the softmax": figures.ORANGE,
    "divided by d_k": figures.GREEN,
    "not scaled": "0.5",
}
for panel, (name, of_form), title in zip(panels, curves.items(), looks, strict=True):
    panel.bar(range(1, 17), np.mean(of_form, axis=0), 0.8, color=looks[title], alpha=0.8)
    panel.set(ylim=(0, 1), xlabel="key, best to worst", xticks=[1, 8, 16])
    panel.set_title(f"{title}\n{name.partition(': ')[2]}", fontsize=9)
    gradient = f"{min(gradients[name]):.4f}–{max(gradients[name]):.4f}"
    note = f"row sum {totals[name][0]:.4g}\ngradient at the\nquery {gradient}"
    panel.text(16.4, 0.97, note, ha="right", va="top")
panels[0].set_ylabel("weight (mean of 6,000 rows)")
figures.show(figure, "03_misplaced")

# %% [markdown]
# ## Cosine or dot product?
#
# One often reads that the dot product is the cosine similarity (article 000). It is, for vectors of
# length 1. Otherwise $q \cdot k = |q|\,|k| \cos(q, k)$, and a long key can win from further away:

# %%
q, keys = np.array([[1.0, 0.0]]), np.array([[1.0, 0.1], [3.0, 3.0]])
dots = q @ keys.T
unit_keys = keys / np.linalg.norm(keys, axis=1, keepdims=True)
cosines = q @ unit_keys.T  # q has length 1 already
_, weights = kt.scaled_dot_product_attention(*(ops.convert_to_tensor(x) for x in (q, keys, keys)))
print("dot products", dots[0], "cosines", cosines[0].round(3))
print("attention   ", ops.convert_to_numpy(weights)[0].round(3))
assert cosines.argmax() == 0 and dots.argmax() == int(ops.argmax(weights)) == 1

# %% [markdown]
# The first key points the right way, the second wins by its length. Attention can make use of that:
# a long key answers loudly, whoever asks.
#
# ## Additive or dot product?
#
# The older score function is a small network, $v^T \tanh(W q + U k)$ with trained $W$, $U$ and $v$
# (Bahdanau et al. 2015). One can read that the paper prefers it to the dot product when $d_k$ is
# small (article 001). Section 3.2.1 says something else: for small $d_k$ the two perform similarly;
# for larger $d_k$ additive attention beats a dot product *without* the scale. Here are all three:


# %%
def additive(query, keys):
    W, U = (keras.layers.Dense(query.shape[-1], use_bias=False) for _ in range(2))
    v = keras.layers.Dense(1, use_bias=False)
    hidden = ops.tanh(W(query) + U(keys))  # (batch, keys, d_k): one query meets all keys
    return ops.swapaxes(v(hidden), 1, 2)  # (batch, 1, keys)


def dot(query, keys):
    return ops.matmul(query, ops.swapaxes(keys, 1, 2))


def scaled_dot(query, keys):
    return dot(query, keys) * query.shape[-1] ** -0.5


# %% [markdown]
# Let's have each look words up in a dictionary: 16 of 40 symbols are the keys, each with four
# random numbers for its value, and one of them is asked for. Queries and keys are trained
# embeddings (an embedding is one trained vector for each symbol) that start with variance 1, of
# width 4 and of width 256. A last contestant, the unscaled dot product of width 256 once more,
# starts smaller, so that $q \cdot k$ has variance 1. The answer is the weighted mean of the values.
# Its mean squared error is 1 for answering zero, and 15/16 for equal weights.


# %%
def lookups(count):
    # each row: 16 of the 40 symbols, in random order
    keys = rng.permuted(np.tile(np.arange(40), (count, 1)), axis=1)[:, :16]
    values, asked, row = rng.normal(size=(count, 16, 4)), rng.integers(0, 16, count), range(count)
    return {"query": keys[row, asked, None], "keys": keys, "values": values}, values[row, asked]


query_ids = keras.Input((1,), dtype="int32", name="query")
key_ids = keras.Input((16,), dtype="int32", name="keys")
values, answers = keras.Input((16, 4), name="values"), {}
contestants = [(score, d_k, 1.0) for d_k in (4, 256) for score in (additive, dot, scaled_dot)]
# the variance of q · k is d_k times that of a component, squared: 256 · (1/16)² = 1
for score, d_k, deviation in [*contestants, (dot, 256, 256**-0.25)]:
    start = [keras.initializers.RandomNormal(stddev=deviation) for _ in range(2)]
    query = keras.layers.Embedding(40, d_k, start[0])(query_ids)
    keys = keras.layers.Embedding(40, d_k, start[1])(key_ids)
    name = f"{score.__name__}_{d_k}" + ("" if deviation == 1 else "_small_start")
    answers[name] = ops.matmul(ops.softmax(score(query, keys)), values)[:, 0]
model = keras.Model([query_ids, key_ids, values], answers)
model.compile(keras.optimizers.Adam(), dict.fromkeys(answers, "mse"))

# %% [markdown]
# This is one model in name only: the contestants share nothing but the data and the 300 steps. The
# best learning rate may depend on the score, so let's give them two tries:

# %%
(x_train, y_train), (x_test, y_test) = lookups(32 * 300), lookups(2000)
start, errors = model.get_weights(), {name: [] for name in answers}
for learning_rate in (0.03, 0.1):
    model.set_weights(start)
    for variable in model.optimizer.variables:  # Adam forgets the first rate
        variable.assign(ops.zeros(variable.shape, variable.dtype))
    model.optimizer.learning_rate = learning_rate
    model.fit(x_train, dict.fromkeys(answers, y_train), batch_size=32, verbose=0)
    for name, answer in model.predict(x_test, batch_size=500, verbose=0).items():
        errors[name].append(float(((answer - y_test) ** 2).mean()))
for name, (slow, fast) in errors.items():
    print(f"{name:19}: error {slow:.3f} with Adam at 0.03, {fast:.3f} at 0.1")

assert max(min(errors[name]) for name in ("additive_4", "dot_4", "scaled_dot_4")) < 0.25
assert errors["dot_4"][1] < errors["additive_4"][1]
assert max(min(errors["dot_4"]), min(errors["scaled_dot_4"])) < min(errors["additive_4"])
assert min(errors["dot_256"]) > 0.7 and errors["additive_256"][0] < 0.1
assert max(errors["scaled_dot_256"]) < 0.1 and min(errors["dot_256_small_start"]) < 0.1

# %% [markdown]
# In this task the paper is right. At $d_k = 4$ all three learn the dictionary, and additive
# attention has no lead: each at its better rate, both dot products come out lower. At $d_k = 256$
# the unscaled dot product is no better than an answer of zeros, at either rate; additive attention
# learns at the lower one, the scaled dot product at both. And it was the variance, not the width:
# started small, the unscaled dot product also learns.
#
# ## What Q and K are for
#
# Three reasons are often given (article 001) for projecting $X$, whose rows are the tokens, each
# $d_{model}$ wide, to $Q = XW^Q$ and $K = XW^K$: it copes with sentences of different lengths,
# saves computation, and learns nonlinear features. Let's check each, and a fourth:

# %%
d_model, d_k = 512, 64
W_Q, W_K = rng.normal(size=(2, d_model, d_k)) / np.sqrt(d_model)
X = rng.normal(size=(20, d_model))
Q, K = X @ W_Q, X @ W_K
print("lengths: 20 tokens stay", len(Q), "queries and 7 stay", len(X[:7] @ W_Q))

for n in (20, 200):  # multiplications
    direct, projected = n * n * d_model, 2 * n * d_model * d_k + n * n * d_k
    print(f"computation, {n} tokens: X X^T {direct:,}, by way of Q and K {projected:,}")
    assert (projected < direct) == (n == 200)

np.testing.assert_allclose(Q @ K.T, X @ (W_Q @ W_K.T) @ X.T)
rank = np.linalg.matrix_rank(W_Q @ W_K.T)
print(f"linear: the scores are X M X^T, with one matrix M of {d_model} x {d_model} and rank {rank}")
assert rank == d_k

own = [(scores.argmax(axis=-1) == np.arange(20)).mean() for scores in (X @ X.T, Q @ K.T)]
print(f"best key is the token itself: {own[0]:.0%} of X X^T, {own[1]:.0%} of Q K^T")
assert own[0] == 1 and own[1] < 0.5

np.testing.assert_allclose(X @ X.T, (X @ X.T).T)  # mutual: i scores j as j scores i
assert np.abs(Q @ K.T - (Q @ K.T).T).max() > 1

# %% [markdown]
# A projection keeps the number of tokens (it is the weighted mean that takes any number of keys),
# saves computation only for long inputs, and is linear; the one nonlinear step of equation 1 is the
# softmax. What it does change are the last lines: without $W^Q$ and $W^K$ random tokens find
# themselves first, and $XX^T$ is symmetric: "it" could not attend to "dog" without "dog" scoring
# "it" as high. With them the model learns what fits what, in each direction. Which keys a query
# *may* see is the mask's business (chapter 6); several attentions side by side are the next
# chapter.
#
# ## What we have so far
#
# From here to chapter 11 a small translator grows, by one part in each chapter. Its language is
# made up: 那天 雨 很大 is "It rained heavily that day", 他 等 她 is "He awaits her". Chinese, `<s>`
# (start), English and `</s>` (end) stand in one line; from `<s>` on, each place names the next
# English word, and may see itself and what stands before it. (`weather.py`, beside the chapters,
# has the grammar; chapter 7 looks into it.)

# %%
for source, target, *_ in weather.TEST[:4]:  # what else a pair holds: chapter 7
    print(*source, "<s>", *target, "</s>")
print(f"{len(weather.TRAIN):,} sentences to learn from, {len(weather.TEST)} never seen;", end=" ")
print(f"{weather.FLOOR:.2f} nats per token are the least possible without the Chinese")

# %% [markdown]
# We measure the loss on the sentences never seen, in *nats per token*: the mean of $-\ln p$, where
# $p$ is the probability that the model gave to the right word. Keras prints it as the
# cross-entropy. Since we made the language, we know what is possible. The English follows from the
# Chinese, so a loss of 0 is possible; a model that does not read the Chinese cannot get below 1.47.
# Our translator is as small as can be: a vector for each word, one mixture of the past, and a
# linear readout to *logits*: one number for each word of the vocabulary, and the softmax makes
# probabilities of them. Let's compare the two mixtures of this chapter for the same 252 steps, from
# three random initializations each (we call them *starts*; they are the dots of the picture):


# %%
def translator(mix):
    """A function from ids to logits: vectors of words, their mixture at each place, a readout."""

    def build(ids):
        x = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32)(ids)  # Embedding, scaled: chapter 5
        return keras.layers.Dense(weather.VOCABULARY_SIZE)(mix(x))

    return build


past = np.tri(weather.LENGTH, dtype="float32")


def average(x):
    return ops.matmul(past / past.sum(axis=1, keepdims=True), x)


def attention(x):
    q, k, v = (keras.layers.Dense(32, use_bias=False)(x) for _ in range(3))
    return kt.scaled_dot_product_attention(q, k, v, attention_mask=past == 1)[0]


# %%
so_far = {mix.__name__: weather.train(translator(mix))[0] for mix in (average, attention)}
for name, losses in so_far.items():
    print(f"{name:9}: {min(losses):.2f} to {max(losses):.2f} nats per token")
assert min(so_far["attention"]) < 0.7 * min(so_far["average"])
assert max(so_far["average"]) < weather.FLOOR

# %%
# extra code – the picture that grows
figures.show(weather.picture(3, **so_far), "03_so_far")

# %% [markdown]
# Both are far below what is possible without the Chinese. The average knows which words there are,
# and can take nothing from the one that matters without taking as much from each of the others.
# Attention can: the loss of its best start is less than 0.7 times that of the average's best. But
# its starts lie far apart: it has one mixture for each place, and in these few steps not every
# start finds out what to do with it. Chapter 4 gives it more than one.
#
# ## Exercises
#
# 1. PyTorch's `nn.Linear`, like Keras's `Dense`, adds a bias to the keys. What does it do?
# 2. The scale assumes components of variance 1. What is the variance of a scaled score if they have
#    standard deviation 2? (The answer names a layer that keeps them from it at the start.)
# 3. Let the cosine be the score, without any factor. How much weight can one key of 16 get?
#
# Write equation 1 yourself, as a function of query, key and value, and
# [have it marked](../docs/grading.md):
# `kt.check_layer(my_attention)` says in one sentence what is wrong, if anything is.
#
# ## Answers
#
# **1.** Nothing: $q \cdot (k + b) = q \cdot k + q \cdot b$ moves a whole row by one number, which
# the softmax does not see. A bias of the queries does change the weights.

# %%
b = rng.normal(size=d_k)
np.testing.assert_allclose(softmax(Q @ (K + b).T), softmax(Q @ K.T))
assert np.abs(softmax((Q + b) @ K.T) - softmax(Q @ K.T)).max() > 0.01

# %% [markdown]
# **2.** $2^4 = 16$: as much as without the scale at $d_k = 16$. Layer normalization (chapter 8)
# gives each *token* variance 1, and $W^Q$ and $W^K$ begin so that queries and keys have about that
# too. Training may change it; some later models normalize queries and keys themselves (QK-norm,
# Henry et al. 2020).

# %%
q, k = 2 * rng.normal(size=(2, 20_000, d_k))
tokens = ops.convert_to_tensor(2 * rng.normal(size=(4_000, d_model)), "float32")
tokens = ops.convert_to_numpy(keras.layers.LayerNormalization()(tokens))
variance, after = (
    ((queries * keys).sum(axis=-1) / np.sqrt(d_k)).var()
    for queries, keys in ((q, k), (tokens[1:] @ W_Q, tokens[:-1] @ W_K))
)
print(f"variance of the scaled scores {variance:.1f}, of layer-normalized tokens {after:.2f}")
assert abs(variance - 16) < 1.6 and abs(after - 1) < 0.3

# %% [markdown]
# **3.** A third: with one key at 1 and fifteen at -1, $e / (e + 15 e^{-1}) = 0.33$. Attention by
# cosine needs a learned factor before it can point at anything.

# %%
weights = softmax(np.array([1.0] + 15 * [-1.0]))
print(f"largest weight {weights[0]:.2f}")
np.testing.assert_allclose(weights[0], np.e / (np.e + 15 / np.e))


def attention_by_cosine(query, key, value):
    query, key = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (query, key))
    return softmax(query @ key.swapaxes(-1, -2)) @ value


report = kt.check_layer(attention_by_cosine)
print(report)
assert not report.passed and "cosine" in str(report)

# %%
# extra code – the numbers of the gallery
figures.record(reordered_below=1e-5)  # as asserted above
figures.record(row_sum=in_article.sum(axis=-1).mean(), half=half)
figures.record(cosine_1=cosines[0, 0], cosine_2=cosines[0, 1], dot_1=dots[0, 0], dot_2=dots[0, 1])
# As asserted above:
figures.record(best_by_d_k_below=0.075, best_by_root_above=0.23)
figures.record(ratio_above=40, saturation_above=2.5, median_below=0.01, largest_above=10)
figures.record(learned_below=0.1, unscaled_above=0.7)
figures.record(direct=20 * 20 * d_model, projected=2 * 20 * d_model * d_k + 20 * 20 * d_k)
least, most = ({name: f(losses) for name, losses in so_far.items()} for f in (min, max))
figures.record(0.1, average_least=least["average"], average_most=most["average"])
figures.record(0.1, attention_least=least["attention"])
figures.record(0.5, attention_most=most["attention"])

# %% [markdown]
# ## In short
#
# - Scores by dot product, weights by softmax, the weighted mean of the values: that is all.
# - Dividing the *scores* by $\sqrt{d_k}$ keeps their variance at 1 and the softmax awake; dividing
#   the weights afterwards rescues nothing.
# - $W^Q$ and $W^K$ let the model learn what fits what: without them every score is mutual, and a
#   word finds itself first.
#
# **Next**: one attention takes one mean. [Chapter 4](04_multi_head_attention.py) takes several.
