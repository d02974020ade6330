"""The small translator that chapters 3 to 11 rebuild: its language, its training, its picture.

The language is made up: Chinese of some forty words, and its English. The English follows from the
Chinese, so the least possible loss is 0 nats; without the Chinese it is `FLOOR` nats per token.
"""

import re

import keras
import numpy as np

import figures
import keras_transformer as kt


def lexicon(text):
    return dict(entry.split(" ", 1) for entry in text.split(", "))


DAYS = lexicon("今天 today, 每天 every day, 每年 every year")
PAST = lexicon("那天 that day, 昨天 yesterday, 去年 last year, 昨晚 last night")
ADVERBS = lexicon("也 too, 又 again, 常常 often, 忽然 suddenly")
SKY = lexicon("雨 rained, 雪 snowed, 雷 thundered, 冰雹 hailed")
DEGREES = lexicon("很大 heavily, 很小 lightly, 不停 nonstop, 很久 long")
SUBJECTS = lexicon("我 I, 你 You, 他 He, 她 She, 我们 We, 他们 They, 老师 Teachers, 孩子 Children")
OBJECTS = lexicon("我 me, 你 you, 他 him, 她 her, 我们 us, 他们 them, 老师 teachers, 孩子 children")
VERBS = lexicon(
    "爱 love loves, 买 buy buys, 卖 sell sells, 吃 eat eats, 要 want wants, 画 draw draws"
)
MEETINGS = lexicon("爱 love loves, 等 await awaits, 找 seek seeks, 帮 help helps, 画 draw draws")
THINGS = lexicon("苹果 apples, 梨 pears, 面包 bread, 鱼 fish, 糖 sweets, 花 flowers, 书 books")


def weather(one_of, adverb):
    day, sky, degree = one_of([None, *DAYS, *PAST]), one_of(SKY), one_of(DEGREES)
    target = [("It", None), (SKY[sky], sky), (DEGREES[degree], degree)]
    return day, [sky, adverb, degree], target


def people(one_of, adverb, verbs=VERBS, things=THINGS):
    day, subject, verb, thing = (one_of(x) for x in ([None, *DAYS], SUBJECTS, verbs, things))
    form = verbs[verb].split()[int(subject in ("他", "她"))]
    target = [(SUBJECTS[subject], subject), (form, verb), (things[thing], thing)]
    return day, [subject, adverb, verb, thing], target


def meetings(one_of, adverb):
    return people(one_of, adverb, MEETINGS, OBJECTS)


def draw(rng, kinds=(weather, people, meetings)):
    """Source words, target words, links (target index, source index), -log probability."""
    nats = 0.0

    def one_of(choices):
        nonlocal nats
        choices = list(choices)
        nats += np.log(len(choices))
        return choices[rng.integers(len(choices))]

    adverb = one_of([None, *ADVERBS])
    day, source, target = one_of(kinds)(one_of, adverb)
    source.insert(rng.integers(2), day)  # before or after the first word: the English is the same
    source = [word for word in source if word]
    target += [(word, adverb) for word in ADVERBS.get(adverb, "").split()]
    target += [(word, day) for word in (DAYS | PAST).get(day, "").split()]
    links = [(i, source.index(origin)) for i, (_, origin) in enumerate(target) if origin]
    return source, [word for word, _ in target], links, nats


def sentences(rng, number):
    """Draws without repeating a source."""
    drawn = {}
    while len(drawn) < number:
        pair = draw(rng)
        drawn.setdefault(" ".join(pair[0]), pair)
    return list(drawn.values())


DRAWN = sentences(np.random.default_rng(57), 4300)
TEST, TRAIN = DRAWN[:300], DRAWN[300:]
WORDS = ["·", "?", "<s>", "</s>", *sorted({w for pair in TRAIN for side in pair[:2] for w in side})]
VOCABULARY_SIZE = len(WORDS)
ID = {word: i for i, word in enumerate(WORDS)}
FLOOR = sum(nats for *_, nats in TEST) / sum(len(target) + 1 for _, target, *_ in TEST)
LENGTH, SOURCE_LENGTH, TARGET_LENGTH = 12, 6, 7  # of a line, and of its two parts
LOSS = kt.TokenCrossEntropy()


def rows(texts, length):
    ids = np.zeros((len(texts), length), "int32")  # 0 is padding
    for row, words in zip(ids, texts, strict=True):
        row[: len(words)] = [ID[word] for word in words]
    return ids


def lines(pairs):
    """One row for each pair, 我 爱 你 <s> I love you; a label for each place from <s> on."""
    ids = rows([[*s, "<s>", *t, "</s>"] for s, t, *_ in pairs], LENGTH + 1)
    starts = np.array([[len(source)] for source, *_ in pairs])
    return ids[:, :-1], np.where(np.arange(LENGTH) >= starts, ids[:, 1:], kt.PADDING)


def two_rows(pairs):
    """Source and target apart: 我 爱 你 </s>, and <s> I love you with its labels."""
    source = rows([[*s, "</s>"] for s, *_ in pairs], SOURCE_LENGTH)
    target = rows([["<s>", *t, "</s>"] for _, t, *_ in pairs], TARGET_LENGTH + 1)
    return {"source_ids": source, "target_ids": target[:, :-1].copy()}, target[:, 1:]


def train(build, form=lines, optimizer=None, epochs=4, starts=3):
    """Trains some starts of a translator side by side; they share the data and nothing else.

    Args:
        build: function from ids to logits, called once for each start.
        form: `lines`, or `two_rows`: then the ids are a dict of source_ids and target_ids.
        optimizer: keras.optimizers.Optimizer; None: Adam at 0.003.
        epochs: int, of 63 steps.
        starts: int from 1.

    Returns:
        losses: list of floats, of each start the nats per token in 300 sentences never seen.
        model: keras.Model, the first of them.
    """
    keras.utils.set_random_seed(57)
    (x, labels), (x_test, test_labels) = form(TRAIN), form(TEST)
    if form is lines:
        ids = keras.Input(x.shape[1:], dtype="int32")
    else:
        ids = {name: keras.Input(x[name].shape[1:], dtype="int32", name=name) for name in x}
    logits = {f"start_{number}": build(ids) for number in range(1, starts + 1)}
    model = keras.Model(ids, logits)
    model.compile(optimizer or keras.optimizers.Adam(0.003), dict.fromkeys(logits, LOSS))
    answers = dict.fromkeys(logits, labels)
    model.fit(x, answers, batch_size=64, epochs=epochs, shuffle=False, verbose=0)
    tested = model.predict(x_test, batch_size=len(TEST), verbose=0)
    losses = [float(LOSS(test_labels, each)) for each in tested.values()]
    return losses, keras.Model(ids, logits["start_1"])


def share_written(model):
    """Of the 300 sentences, the share that a model writes right, always its most probable word."""
    ids, labels = lines(TEST)
    asked = labels != kt.PADDING
    ids[np.cumsum(asked, axis=1) > 1] = kt.PADDING  # all that comes after <s>
    written, row, place = np.zeros_like(labels), np.arange(len(ids)), asked.argmax(axis=1)
    for _ in range(TARGET_LENGTH):
        logits = model.predict(ids, batch_size=len(ids), verbose=0)
        written[row, place] = logits[row, place].argmax(axis=-1)
        inside = place + 1 < ids.shape[1]
        ids[row[inside], place[inside] + 1] = written[row, place][inside]
        place = np.minimum(place + 1, ids.shape[1] - 1)
    return float(((written == labels) | ~asked).all(axis=1).mean())


# Each part, and the least and the most nats per token of its three starts, as its chapter has
# recorded them, on TensorFlow: `.ci/refresh_chapters.py` rewrites these numbers.
SO_FAR = {
    "average": "the past, averaged: 0.65<!--03.average_least--> to 0.69<!--03.average_most-->",
    "attention": "attention: 0.12<!--03.attention_least--> to 0.30<!--03.attention_most-->",
    "heads": "four heads: 0.053<!--04.so_far_least--> to 0.096<!--04.so_far_most-->",
    "positions": "positions: 0.002<!--05.so_far_least--> to 0.021<!--05.so_far_most-->",
    "unmasked": "no mask, a leak: 0.0024<!--06.so_far_least--> to 0.0028<!--06.so_far_most-->",
    "three": "encoder, decoder: 0.020<!--07.so_far_least--> to 0.080<!--07.so_far_most-->",
    "add_norm": "Add & Norm: 0.012<!--08.add_norm_least--> to 0.012<!--08.add_norm_most-->",
    "feed_forward": (
        "feed-forward: 0.010<!--08.feed_forward_least--> to 0.011<!--08.feed_forward_most-->"
    ),
    "blocks": "two blocks, one matrix: 0.011<!--09.blocks_least--> to 0.011<!--09.blocks_most-->",
    "warm_up": "Adam, warm-up: 0.0016<!--10.warm_up_least--> to 0.0017<!--10.warm_up_most-->",
}
RECORDED = re.compile(r"(.+): ([\d.]+)<!--(\d\d)\.\w+--> to ([\d.]+)<!--\d\d\.\w+-->")


def picture(chapter, **losses):
    """The figure that grows: what each part has brought, up to a chapter.

    Args:
        chapter: int; of the chapters before it, the numbers recorded last are drawn.
        **losses: lists of floats, nats per token of this chapter's parts, by their names in SO_FAR.
    """
    figure, panel = figures.panels(width=9.6)
    labels = []
    for name, line in SO_FAR.items():
        label, least, number, most = RECORDED.fullmatch(line).groups()
        if int(number) < chapter or name in losses:
            values = losses.get(name, [float(least), float(most)])
            color, place = figures.ORANGE if name in losses else figures.BLUE, len(labels)
            if name == "unmasked":
                color = "0.5"  # it has read the answers
            panel.plot([place] * 2, [min(values), max(values)], "-", color=color, lw=7, alpha=0.4)
            panel.plot([place] * len(values), values, "o", color=color, markersize=4)
            text = f"{min(values):.2g}" + (f"–{max(values):.2g}" if len(values) > 1 else "")
            panel.text(place, 1.3 * max(values), text, ha="center", fontsize=8, color=color)
            labels.append(f"{label}\n({int(number)})".replace(", ", ",\n"))
    panel.axhline(FLOOR, ls="--", color=figures.BLACK)
    panel.text(len(labels) - 0.5, 1.1 * FLOOR, "least possible without the Chinese", ha="right")
    panel.set_xticks(range(len(labels)), labels)
    panel.set(yscale="log", ylabel="nats per token, new sentences", xlim=(-0.5, len(labels) - 0.5))
    panel.set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    panel.set(xlabel="part, and the chapter that opens it", ylim=(0.0005, 4))
    return figure
