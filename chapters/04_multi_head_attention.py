# %% [markdown]
# # 4 · Multi-head attention
#
# **Why several attentions side by side, if together they cost no more than one?** Let's cut the
# heads out of one projection, count what they cost, see where Q, K and V come from in each of a
# Transformer's attentions, and train one head and two on a task with two relations, over a sentence
# of thirteen words. Run time: about 30 s.
#
# *In plain words:* one attention takes one mixture, and a word may need two things at once. So its
# query, key and value are cut into parts, and each part asks its own question. It costs nothing,
# since the parts together are as wide as before.
#
# *Paper: sections 3.2.2 and 3.2.3. Géron: chapter 16, "Attention Is All You Need: The Original
# Transformer Architecture" ("Multi-head attention"). Articles: all but 001, above all 003 and 004.*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather
from keras_transformer import plots

keras.utils.set_random_seed(4)
rng = np.random.default_rng(4)

# %% [markdown]
# ## Heads are slices of one projection
#
# $$\begin{aligned}
# \mathrm{MultiHead}(Q, K, V) &= \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h)\,W^O \\
# \mathrm{head}_i &= \mathrm{Attention}(QW_i^Q, KW_i^K, VW_i^V)
# \end{aligned}$$
#
# The $Q$, $K$ and $V$ of this equation are what goes *in*, before any projection; with one sentence
# all three are $X$. What chapter 3 called $Q = XW^Q$ is $QW_i^Q$ here. $h$ is the number of heads,
# $W^O$ one more trained matrix.
#
# ![Heads are slices of one projection](../docs/drawings/heads.svg)
#
# The equation has $3h$ small matrices. The package has three large ones, and head $i$ is a slice of
# their columns. Let's fill a layer of four heads with random numbers and do it by the equation (the
# layer adds a bias to each product):

# %%
layer = kt.MultiHeadAttention(num_heads=4)
x = rng.normal(size=(1, 6, 32)).astype("float32")  # (batch, tokens, d_model)
layer.build(x.shape, x.shape)
layer.set_weights([0.2 * rng.normal(size=w.shape) for w in layer.get_weights()])
W_Q, b_Q, W_K, b_K, W_V, b_V, W_O, b_O = layer.get_weights()

heads, slices = [], [slice(8 * i, 8 * i + 8) for i in range(4)]  # columns of each head
for i in slices:
    q, k, v = x @ W_Q[:, i] + b_Q[i], x @ W_K[:, i] + b_K[i], x @ W_V[:, i] + b_V[i]
    head, _ = kt.scaled_dot_product_attention(q, k, v)
    heads.append(ops.convert_to_numpy(head))
by_equation = np.concatenate(heads, axis=-1) @ W_O + b_O
by_layer = ops.convert_to_numpy(layer(x, x))  # who asks, and who answers
print(f"equation and layer differ by {np.abs(by_equation - by_layer).max():.0e}")
np.testing.assert_allclose(by_equation, by_layer, atol=1e-5)

# %% [markdown]
# Concatenating and then multiplying by $W^O$ sounds like a merger at the end. It is a plain sum:
# each head has its own eight rows of $W^O$, and adds what it found to the output.

# %%
by_sum = sum(head @ W_O[i] for head, i in zip(heads, slices, strict=True)) + b_O
np.testing.assert_allclose(by_sum, by_equation, atol=1e-5)

# %% [markdown]
# ## What the heads cost
#
# $h$ heads of width $d_{model}/h$ cost about as much as one of full width (section 3.2.2). Let's
# count:


# %%
def multiplications(tokens, d_model, num_heads, key_dim):
    width = num_heads * key_dim
    projections = 4 * tokens * d_model * width  # Q, K, V and the output
    return projections + num_heads * 2 * tokens * tokens * key_dim  # Q K^T, weights times V


def parameters(layer):
    layer.build((None, 100, 128), (None, 100, 128))
    return layer.count_params()


counts = {}
for h in (1, 2, 4, 8):
    counts[h] = (
        parameters(kt.MultiHeadAttention(num_heads=h)),
        multiplications(100, 128, h, key_dim=128 // h),
    )
    print(f"{h} heads: {counts[h][0]:,} parameters, {counts[h][1]:,} multiplications,", end=" ")
    print(f"{h * 100 * 100:,} exponentials")
assert set(counts.values()) == {(4 * 128 * 128 + 4 * 128, counts[1][1])}

# %% [markdown]
# Exactly the same number; only the softmax has more to do. Beware: in
# `keras.layers.MultiHeadAttention` the argument `key_dim` is the width of *one* head, and passing
# $d_{model}$ makes eight heads of full width:

# %%
wide = parameters(keras.layers.MultiHeadAttention(num_heads=8, key_dim=128))
right = parameters(keras.layers.MultiHeadAttention(num_heads=8, key_dim=128 // 8))
print(f"key_dim=128: {wide:,} parameters; key_dim=16: {right:,}")
assert (wide, right) == (527_488, 66_048) and right == counts[8][0]
assert multiplications(100, 128, 8, key_dim=128) == 8 * counts[8][1]

# %% [markdown]
# ## Where Q, K and V come from
#
# The paper's model translates: an *encoder* reads the source sentence, and a *decoder* writes the
# target, one word after the other. While it writes, a word must not look at the words after it, so
# they are masked (chapter 6), and it looks at what the encoder has made of the source, the *memory*
# (chapter 7).
#
# Four attentions often stand in one table (article 003). In *self-attention* a sentence asks
# itself: queries, keys and values all come from it. *Masked* self-attention is the same, under a
# mask that Keras calls *causal*. In *cross-attention* the queries come from the target, keys and
# values from the source. Here it is as code: one layer class, and the kinds differ in what is
# passed. (Mind the order, Keras's: `query, value, key`, and the key is the value unless we say
# otherwise.) "Multi-head", the table's fourth row, is not a fourth kind: all three have heads.

# %%
source = rng.normal(size=(1, 5, 32)).astype("float32")  # 5 tokens, for the encoder
target = rng.normal(size=(1, 3, 32)).astype("float32")  # 3 tokens, for the decoder
attend = kt.MultiHeadAttention(num_heads=4)
kinds = {
    "self": (source, source, False),  # encoder
    "masked self": (target, target, True),  # decoder
    "cross": (target, source, False),  # decoder; the source as the encoder leaves it: the memory
}
for kind, (query, value, causal) in kinds.items():
    _, weights = attend(query, value, use_causal_mask=causal, return_attention_scores=True)
    print(f"{kind:12} Q from {query.shape[1]} tokens, K and V from {value.shape[1]}:", end=" ")
    print("weights (batch, heads, target, source)", tuple(weights.shape))
    assert weights.shape == (1, 4, query.shape[1], value.shape[1])

# %% [markdown]
# What can each output know? `figures.who_moves` changes one input token after the other and notes
# which outputs move. (At the end we ask a whole block of the decoder; chapter 9 opens it.)

# %%
hears = {
    "self: source to source": figures.who_moves(lambda x: attend(x, x), source),
    "masked: target to target": figures.who_moves(
        lambda x: attend(x, x, use_causal_mask=True), target
    ),
    "cross: memory to target": figures.who_moves(lambda x: attend(target, x), source),
    "cross: target to target": figures.who_moves(lambda x: attend(x, source), target),
}
wanted = np.ones((5, 5)), np.tri(3), np.ones((3, 5)), np.eye(3)
for matrix, found in zip(wanted, hears.values(), strict=True):
    np.testing.assert_array_equal(found, matrix)

block = kt.DecoderBlock(num_heads=4, d_ff=64)  # d_ff: chapter 8
in_block = figures.who_moves(lambda x: block(x, source), target)
np.testing.assert_array_equal(in_block, np.tri(3))
# below the diagonal an earlier token moves a later output; above it, a later one an earlier
earlier = [np.tril(moved, -1).sum() for moved in (in_block, hears["cross: target to target"])]
later = np.triu(in_block, 1).sum()
print(f"outputs that an earlier target token moves: {earlier[0]} of 3 in a decoder block, ", end="")
print(f"{earlier[1]} in cross-attention alone; that a later one moves: {later} of 3")

# %%
# extra code – who hears whom
figure, row = figures.panels(4, width=2.4, height=2.4)
for panel, (title, matrix) in zip(row, hears.items(), strict=True):
    panel.pcolormesh(matrix, cmap="Blues", vmin=-0.1, vmax=1.4, edgecolors="white", linewidth=2)
    panel.set(xlabel="input token that changes", ylabel="outputs that move (dark)", title=title)
    panel.set_xticks(np.arange(matrix.shape[1]) + 0.5, range(1, matrix.shape[1] + 1))
    panel.set_yticks(np.arange(matrix.shape[0]) + 0.5, range(1, matrix.shape[0] + 1))
    panel.set_aspect("equal")
    panel.invert_yaxis()
figures.show(figure, "04_sources")

# %% [markdown]
# In cross-attention a target token hears all of the memory, but of the target only itself. What
# came before it reaches it through the queries: these are not "the decoder's input", as one often
# reads (article 000), but what the masked attention below has made of it (section 3.2.3). Some
# tables also list plain self-attention for the decoder (article 003). The paper's has none: as
# checked above the figure, no output of the package's `DecoderBlock` moves with a later target
# token.
#
# ## Two relations at once
#
# Why heads at all? Several heads can look at several places at once; "with a single attention head,
# averaging inhibits this", says section 3.2.2: one head must squeeze all that a word such as 他
# (he) has to do with into one set of weights. Let's take the thirteen words of a sentence that we
# shall come to, draw thirteen of them for each row, join its ends, so that the first and the last
# word also have neighbors, and ask at every position for two words: the one before and the one
# after. ("Before" means nothing to attention itself. So a trained vector for each place is added to
# the word, which is chapter 5.)

# %%
words = "那天 雨 很大 他 等了 很久 水汽 打湿了 衣服 也 没有 等到 她".split()
glosses = "that day,rain,heavy,he,waited,long,mist,soaked,clothes,and still,not,came,she".split(",")
he = words.index("他")  # its place in the sentence
shifts = {"before": 1, "itself": 0, "after": -1}  # np.roll by 1: the word before, in a ring


def examples(count):
    word_ids = rng.integers(0, len(words), size=(count, len(words)))
    return word_ids, {name: np.roll(word_ids, shift, axis=1) for name, shift in shifts.items()}


ids, maps = keras.Input((len(words),), dtype="int32"), {}


def reader(name, num_heads, asked, hidden=0):
    """Logits for each relation that is asked, by name; notes the weights of attention."""
    x = kt.TokenEmbedding(len(words), 32, name=f"words_{name}")(ids)
    x = kt.LearnedPositionalEncoding(len(words), name=f"places_{name}")(x)
    attention = kt.MultiHeadAttention(num_heads, name=f"attention_{name}")
    x, maps[name] = attention(x, x, return_attention_scores=True)
    if hidden:
        x = keras.layers.Dense(hidden, activation="relu")(x)
    names = [f"{name}_{relation}" for relation in asked]  # one linear readout for each
    return {name: keras.layers.Dense(len(words), name=name)(x) for name in names}


# %%
logits = reader("one", 1, ("before", "after"))
logits |= reader("two", 2, ("before", "after"))
logits |= reader("one_hidden", 1, ("before", "after"), hidden=128)
logits |= reader("one_own", 1, ("itself", "before"))
logits |= reader("two_own", 2, ("itself", "before"))
model, look = keras.Model(ids, logits), keras.Model(ids, maps)
sizes = [model.get_layer(f"attention_{name}").count_params() for name in ("one", "two")]
assert sizes[0] == sizes[1]

# %% [markdown]
# One head of width 32 against two of width 16, equal in parameters. (The other three are for later;
# they share the data, and nothing else.)
#
# *Predict before you run:* of the two questions, how many will one head answer, and how many two?

# %%
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), dict.fromkeys(logits, loss))
x_train, y_train = examples(32 * 400)
x_test, y_test = examples(500)
sentence = np.arange(len(words))[None]  # each word once, in order
untrained = ops.convert_to_numpy(look(sentence)["two"])[0]
# the last word of a name is the relation that is asked
model.fit(
    x_train, {name: y_train[name.split("_")[-1]] for name in logits}, batch_size=32, verbose=0
)


def share_right():
    shares = {}
    for name, answer in model(x_test).items():
        answer = ops.convert_to_numpy(answer).argmax(axis=-1)
        shares[name] = float((answer == y_test[name.split("_")[-1]]).mean())
    return shares


right = share_right()
for name in ("one", "two", "one_hidden"):
    before, after = right[f"{name}_before"], right[f"{name}_after"]
    print(f"{name:10}: the word before right {before:.2f}, the word after {after:.2f}")
assert right["one_before"] + right["one_after"] < 1.3
assert min(right["two_before"], right["two_after"]) > 0.95
assert min(right["one_hidden_before"], right["one_hidden_after"]) > 0.9

# %%
# extra code – where 他 looks in the first nine words of the sentence; the others are far away
weights = {name: ops.convert_to_numpy(heads)[0, :, he] for name, heads in look(sentence).items()}
labels = [figures.glossed(word, gloss) for word, gloss in zip(words, glosses, strict=True)]
shown = labels[:9]
groups = {
    "one head": [("one", 0, figures.ORANGE)],
    "two heads": [("two", 0, figures.BLUE), ("two", 1, figures.GREEN)],
}
figure, panels = figures.panels(1, 2, width=7.5, height=1.8)
for panel, (title, drawn) in zip(panels[:, 0], groups.items(), strict=True):
    for name, head, color in drawn:
        for place, weight in enumerate(weights[name][head, : len(shown)]):
            if weight > 0.1 and place != he:  # an arc as thick as its weight
                half, turn = (place - he) / 2, np.linspace(0, np.pi, 50)
                height = 0.35 + 0.5 * abs(half) ** 0.5
                arc = dict(color=color, linewidth=1 + 6 * weight, alpha=0.8)
                panel.plot(he + half * (1 - np.cos(turn)), height * np.sin(turn), **arc)
                back = dict(facecolor="white", edgecolor="none", pad=0.5)  # other arcs pass there
                panel.text(
                    he + half, height + 0.1, f"{weight:.2f}", ha="center", color=color, bbox=back
                )
    for place, label in enumerate(shown):
        color = figures.BLACK if place == he else "0.45"
        panel.text(place, -0.1, label.replace(" ", "\n", 1), ha="center", va="top", color=color)
    panel.set(xlim=(-0.6, len(shown) - 0.4), ylim=(-0.75, 1.45), yticks=[], xticks=[])
    panel.set_title(f"{title}: weights that {labels[he]} gives", loc="left", fontsize=9)
    panel.spines[["left", "bottom"]].set_visible(False)
figures.show(figure, "04_two_relations")

# %% [markdown]
# Two heads: one looks back, one looks ahead, and over 95 % of the answers are right. One head is
# right on less than 65 % of both questions together. It can look at both words, but then returns
# $w_1 v_{before} + w_2 v_{after}$, and to a linear readout the louder word is the answer: "before"
# needs $w_1 > w_2$, "after" needs $w_2 > w_1$. Let's hear them, in the trained head: what does each
# readout answer to a mixture of two words, 0.6 of the one and 0.4 of the other?

# %%
x = model.get_layer("places_one")(model.get_layer("words_one")(sentence))
head = model.get_layer("attention_one")
values = ops.convert_to_numpy(head.output_projection(head.value(x)))[0]  # what each word hands over
pairs = [(i, j) for i in range(len(words)) for j in range(len(words)) if i != j]
mixtures = np.stack([0.6 * values[i] + 0.4 * values[j] for i, j in pairs])
louder = {}
for relation in ("before", "after"):
    readout = model.get_layer(f"one_{relation}")
    answers = ops.convert_to_numpy(readout(mixtures)).argmax(axis=-1)
    louder[relation] = np.mean(answers == [i for i, _ in pairs])
    print(f"asked for the word {relation}, the louder word is the answer: {louder[relation]:.0%}")
assert min(louder.values()) > 0.8

# %% [markdown]
# So one set of weights cannot serve both. But the third line of the results, `one_hidden`, is a
# surprise. One often reads that one head loses information (article 003); it mixes it. With a
# hidden layer behind it, such as the block's feed-forward network has, the same head gives both
# answers.
#
# (One also reads that more heads need more data, in article 000. Here both got the same rows, and
# plenty; whether it holds for few is not tested.)
#
# ## Does a single head look at itself too much?
#
# That is often given as the reason for heads (article 004). Let's measure the weight on the
# diagonal, the mean over all tokens. Equal weights would be 1/13 = 0.08.

# %%
x = ops.convert_to_tensor(rng.normal(size=(500, 13, 32)), "float32")
measured = {"no projections, untrained": kt.scaled_dot_product_attention(x, x, x)[1]}
for h in (1, 8):
    _, fresh = kt.MultiHeadAttention(h)(x, x, return_attention_scores=True)
    measured[f"{h} head{'s' * (h > 1)}, untrained"] = fresh
trained = look(x_test)
measured["1 head, asked for before and after"] = trained["one"]
measured["2 heads, asked for before and after"] = trained["two"]
measured["1 head, asked for itself and before"] = trained["one_own"]
measured["2 heads, asked for itself and before"] = trained["two_own"]
own = {}
for name, weights in measured.items():
    diagonal = np.diagonal(ops.convert_to_numpy(weights), axis1=-2, axis2=-1)
    own[name] = diagonal.mean()
    print(f"{name:36} {own[name]:.2f}")
bare, one, eight, one_neighbors, two_neighbors, one_own, two_own = own.values()
assert bare > 0.7 and abs(one - 1 / 13) < 0.04 and abs(eight - 1 / 13) < 0.04
assert max(one_neighbors, two_neighbors) < 0.1 < 0.13 < min(one_own, two_own)

# %% [markdown]
# What looks at itself too much is attention without $W^Q$ and $W^K$: every vector is its own best
# match. One projected head starts near 1/13, just as eight do, and after training the diagonal gets
# what the task asks of it, with one head and with two. So more heads are not the cure, because one
# head was never ill.
#
# ## 那天雨很大，他等了很久，水汽打湿了衣服，也没有等到她。
#
# "It rained heavily that day, he waited long, the mist soaked his clothes, and still she never
# came." For the query 他, one reads (article 003), the weights are large for 等了很久 (waited long)
# and 她 (she), moderate for 雨很大 (rain), low for 水汽打湿了衣服 (mist): a story of what weights
# could mean, not a measurement. How often do untrained heads show it? (Four weights can stand in 24
# orders, and 2 of these are as told: either of the large ones may come first.) Let's draw 64 heads,
# four in each of 16 layers, and show each 250 sentences:

# %%
columns = [words.index(word) for word in ("等了", "她", "雨", "水汽")]
in_order = []  # one array (sentence, head) for each layer
for _ in range(16):
    x = ops.convert_to_tensor(rng.normal(size=(250, 13, 32)), "float32")  # words: random vectors
    _, weights = kt.MultiHeadAttention(num_heads=4)(x, x, return_attention_scores=True)
    waited, her, rain, mist = np.moveaxis(ops.convert_to_numpy(weights)[:, :, he, columns], -1, 0)
    in_order.append((np.minimum(waited, her) > rain) & (rain > mist))
in_order = np.concatenate(in_order, axis=1)
num_sentences, num_heads = in_order.shape
as_told = in_order.mean()
print(f"{num_heads} untrained heads on {num_sentences} sentences each: the article's order in")
print(f"{as_told:.3f} of {in_order.size:,} cases; 2 of 24 orders would be {2 / 24:.3f}")
assert num_heads == 64 and abs(as_told - 2 / 24) < 0.02

weights = ops.convert_to_numpy(look(sentence)["two"])[0]
for word in ("等了", "她", "雨", "水汽"):
    i = words.index(word)
    print(f"他 -> {word}: two untrained heads {untrained[:, he, i].round(2)},", end=" ")
    print(f"trained on before and after {weights[:, he, i].round(2)}")
assert set(weights[:, he].argmax(axis=-1).tolist()) == {he - 1, he + 1}
assert weights[:, he, words.index("她")].max() < 0.2

# %%
# extra code – heat maps of two heads over the sentence
layers = {"untrained": untrained, "trained on before and after": weights}
columns = words if figures.CHINESE else glosses
figures.show(plots.plot_attention(layers, columns, labels), "04_sentence")

# %% [markdown]
# As often as chance predicts, to within 0.02. The upper maps are two such heads and mean nothing:
# noise that is easily mistaken for insight. The lower ones have learned what they were asked for,
# and only that: 他 attends to 等了 because the two stand side by side, and hardly to 她. A head
# that links 他 and 她 needs a task that rewards it.
#
# ## What we have so far
#
# The translator of chapter 3 took one mixture of the past. Let's give it four heads of width 8 in
# place of its one of width 32 (each head still sees its own word and those before it, a look-ahead
# mask). The layer also brings biases and $W^O$, which may help the training; so we also train it
# with one head:


# %%
def translator(num_heads):
    def build(ids):
        x = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32)(ids)
        x = kt.MultiHeadAttention(num_heads)(x, x, use_causal_mask=True)
        return keras.layers.Dense(weather.VOCABULARY_SIZE)(x)

    return build


one_head, so_far = (weather.train(translator(num_heads))[0] for num_heads in (1, 4))
print(f"one head: {min(one_head):.3f} to {max(one_head):.3f} nats per token")
print(f"four heads: {min(so_far):.3f} to {max(so_far):.3f} nats per token")
assert max(so_far) < min(0.15, *one_head)

# %%
# extra code – the picture that grows
figures.show(weather.picture(4, heads=so_far), "04_so_far")

# %% [markdown]
# Every start is now better than the best of chapter 3, and than the best with one head. Where one
# mixture had to serve for everything, four can share the work: one for the word just written, say,
# and another for the Chinese word that comes next. (Which does what is each start's own affair.)
#
# ## Exercises
#
# 1. Move the weights of the first section's `layer` into `keras.layers.MultiHeadAttention`.
# 2. *Break it:* silence one of the two trained heads: set its rows of $W^O$ to zero (the kernel of
#    `model.get_layer("attention_two").output_projection`). What is lost?
# 3. Does it matter which head comes first? Exchange heads in `layer` so that the output stays the
#    same.
#
# Write the layer yourself, with `keras.layers.Dense` alone, and
# [have it marked](../docs/grading.md):
# `kt.check_layer(MyMultiHeadAttention)`. Right values pass. If the model is to be saved, add what
# Keras needs: it keeps the arguments that `get_config` returns and calls `__init__` with them when
# it loads the file. Those of every layer, such as its name, travel through `**kwargs`.


# %%
class MyMultiHeadAttention(keras.layers.Layer):
    def __init__(self, d_model, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.d_model, self.num_heads = d_model, num_heads

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model, "num_heads": self.num_heads}


loaded = MyMultiHeadAttention.from_config(MyMultiHeadAttention(32, 4, name="mine").get_config())
assert (loaded.d_model, loaded.num_heads, loaded.name) == (32, 4, "mine")

# %% [markdown]
# ## Answers
#
# **1.** Keras keeps an axis for heads where the package has one wide matrix: a reshape.

# %%
x = rng.normal(size=(1, 6, 32)).astype("float32")
keras_layer = keras.layers.MultiHeadAttention(num_heads=4, key_dim=8)
keras_layer.build(x.shape, x.shape)
shapes = [w.shape for w in keras_layer.get_weights()]
keras_layer.set_weights(
    [w.reshape(shape) for w, shape in zip(layer.get_weights(), shapes, strict=True)]
)
expected = ops.convert_to_numpy(layer(x, x))
np.testing.assert_allclose(ops.convert_to_numpy(keras_layer(x, x)), expected, atol=1e-5)
print("kernels:", shapes[0], "for", W_Q.shape, "and", shapes[6], "for", W_O.shape)

# %% [markdown]
# **2.** One of the two relations, and only that one.

# %%
output = model.get_layer("attention_two").output_projection
kernel, bias = output.get_weights()
for head in range(2):
    silenced = kernel.copy()
    silenced[16 * head : 16 * head + 16] = 0
    output.set_weights([silenced, bias])
    right = share_right()
    print(
        f"without head {head + 1}: before {right['two_before']:.2f}, after {right['two_after']:.2f}"
    )
    assert min(right["two_before"], right["two_after"]) < 0.5
    assert max(right["two_before"], right["two_after"]) > 0.8
output.set_weights([kernel, bias])

# %% [markdown]
# **3.** No: a head is its columns of Q, K and V with its rows of $W^O$. Move them together, and the
# sum does not care about their order.

# %%
order = np.concatenate([np.arange(32)[i] for i in reversed(slices)])
columns = [part[..., order] for part in (W_Q, b_Q, W_K, b_K, W_V, b_V)]
layer.set_weights([*columns, W_O[order], b_O])
np.testing.assert_allclose(ops.convert_to_numpy(layer(x, x)), expected, atol=1e-5)

# %%
# extra code – the numbers of the gallery
# As asserted above:
figures.record(one_below=1.3 / 2, two_above=0.95, hidden_above=0.9)
figures.record(bare_above=0.7, near_below=0.04, as_told_within=0.02)
figures.record(by_chance=2 / 24, heads=num_heads, sentences=num_sentences)
figures.record(earlier_in_block=earlier[0], earlier_in_cross=earlier[1], later_in_block=later)
figures.record(0.06, so_far_least=min(so_far), so_far_most=max(so_far))

# %% [markdown]
# ## In short
#
# - A head is a slice of the projections with its rows of $W^O$; the output is the sum of what the
#   heads found, at the cost of one wide head.
# - One head mixes two relations in one mean; two heads keep them apart.
# - A heat map of untrained heads means nothing; a trained head attends to what its task rewards.
#
# **Try it**: `keras-transformer serve dates` shows the heads of a trained translator, with a
# switch for each of them, at `http://localhost:8000/#model=dates&view=attention` ([A
# server](../docs/serving.md#the-page)).
#
# **Next**: all of this holds for a bag of words. [Chapter 5](05_positions.py) brings the order in.
