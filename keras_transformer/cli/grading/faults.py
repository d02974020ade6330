"""Common faults of learners, each with a sentence and the chapter that explains it."""

import dataclasses
from typing import Any

CHAPTERS = {  # those that explain a fault; a test compares the titles
    3: "Scaled dot-product attention",
    4: "Multi-head attention",
    5: "Positions",
    6: "Masks, and the target shifted right",
    7: "Cross-attention aligns",
    8: "Add & Norm, and the feed-forward network",
    9: "The Transformer",
    10: "Training",
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Args:
        sentence: str, what is wrong.
        chapter: int, the chapter that explains it.
        changes: dict, the choices of a `Formula` that the wrong form changes.
    """

    sentence: str
    chapter: int
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.sentence} See chapter {self.chapter}, {CHAPTERS[self.chapter]}."


def _wrong(field, chapter, sentences):
    """A fault per wrong value of a field of `Formula`."""
    return [Fault(sentence, chapter, {field: form}) for form, sentence in sentences.items()]


SCALE = _wrong(
    "scale",
    3,
    {
        "none": "The scores are not scaled: divide Q K^T by √d_k before the softmax, or it "
        "saturates.",
        "after the softmax": "The scale comes after the softmax: the rows of weights sum to 1/√d_k "
        "instead of 1.",
        "d_k": "The scores are divided by d_k instead of its square root: the weights are almost "
        "equal.",
        "times": "The scores are multiplied by √d_k instead of divided by it.",
        "sqrt(length)": "The scale is the root of the number of keys instead of √d_k, the width of "
        "one key.",
    },
) + _wrong(
    "scale",
    4,
    {
        "sqrt(d_model)": "The scale is √d_model, the width of the layer, instead of √d_k, the "
        "width of one head."
    },
)

SOFTMAX = [
    *_wrong(
        "axis",
        3,
        {
            "queries": "The softmax runs over the queries instead of the keys: the weights of one "
            "query must sum to 1, so take it over the last axis.",
            "batch": "The softmax runs over the sentences of the batch instead of the keys: take "
            "it over the last axis.",
        },
    ),
    *_wrong(
        "normalization",
        3,
        {
            "none": "There is no softmax: the scores themselves weight the values.",
            "sigmoid": "A sigmoid replaces the softmax: the weights of one query do not sum to 1.",
        },
    ),
    Fault(
        "The score is the cosine of query and key instead of their dot product over √d_k.",
        3,
        {"similarity": "cosine", "scale": "none"},
    ),
    Fault(
        "The score is the cosine of query and key instead of their dot product.",
        3,
        {"similarity": "cosine"},
    ),
    Fault("The weights average the keys instead of the values.", 3, {"values": "keys"}),
]

HEADS = [
    Fault(
        "The softmax runs over the heads instead of the keys: take it over the last axis.",
        4,
        {"axis": "heads"},
    ),
    *_wrong(
        "heads",
        4,
        {
            "mixed split": "The heads are mixed up when they are split: reshape to (batch, length, "
            "heads, width), then transpose; a reshape alone mixes tokens.",
            "mixed join": "The heads are mixed up when they are joined: transpose back to (batch, "
            "length, heads, width) before the reshape.",
            "mixed both": "The heads are mixed up: a reshape without a transposition, before and "
            "after the attention, mixes tokens with heads.",
            "one": "There is only one head: the projections are not split, whatever num_heads is.",
        },
    ),
]

MASKS = {
    "inverted": "The mask is inverted: True means that a position may be attended to, not that it "
    "is hidden.",
    "ignored": "The mask has no effect: hidden positions, such as padding, are attended to.",
    "zero score": "Hidden scores are set to 0, which is not a weight of 0: set them to -∞ (or "
    "-1e9) before the softmax.",
    "zero weight": "Hidden weights are set to 0 after the softmax, so that the rest no longer sums "
    "to 1: hide the scores before it.",
    "added": "The mask is added to the scores as 0 and 1: turn it into 0 and -∞ (or -1e9) first.",
    "transposed": "The mask is transposed: rows are queries, columns are keys.",
}
MASK, MEMORY_MASK = _wrong("mask", 6, MASKS), _wrong("memory_mask", 6, MASKS)

LOOK_AHEAD = _wrong(
    "look_ahead",
    6,
    {
        "none": "The future leaks: nothing hides later tokens of the target from earlier ones.",
        "leak by one": "The future leaks by one: each position sees the next one, the word that it "
        "must predict.",
        "not itself": "A position does not see itself, and the first one sees nothing: keep the "
        "diagonal.",
    },
)

RESIDUAL = _wrong(
    "residual",
    8,
    {
        "none": "There is no residual connection: add the input of each sublayer to its output.",
        "attention only": "There is no residual connection around the feed-forward network.",
        "feed-forward only": "There is no residual connection around the attention.",
    },
)

NORM = _wrong(
    "norm_axis",
    8,
    {
        "batch": "The normalization runs over the batch, so that a sentence depends on its "
        "neighbors: normalize each token over its features.",
        "length": "The normalization runs over the positions of a sentence: normalize each token "
        "over its features.",
        "batch and length": "The normalization runs over batch and positions, as batch "
        "normalization does: normalize each token over its features.",
        "length and features": "The normalization runs over all tokens of a sentence together: "
        "normalize each token over its features alone.",
    },
) + _wrong(
    "norm_form",
    8,
    {
        "variance": "The normalization divides by the variance instead of its square root.",
        "n - 1": "The variance is divided by n - 1 instead of n, the number of features.",
        "no mean": "The mean is not subtracted: this is RMS normalization, not layer "
        "normalization.",
    },
)

SUBLAYERS = _wrong(
    "norm",
    8,
    {
        "none": "There is no layer normalization.",
        "last only": "Only the last sublayer is normalized: each one has its own layer "
        "normalization.",
    },
)

FEED_FORWARD = _wrong(
    "feed_forward",
    8,
    {
        "linear": "There is no activation between the two layers of the feed-forward network: two "
        "linear maps are one.",
        "relu twice": "There is also an activation behind the second layer of the feed-forward "
        "network: only the inner one has a ReLU.",
    },
)

MEMORY = _wrong(
    "memory",
    7,
    dict.fromkeys(
        ("target", "input"),
        "Cross-attention reads the target instead of the memory: its keys and values come from the "
        "encoder.",
    ),
) + _wrong(
    "order",
    9,
    {"cross first": "Cross-attention comes before the self-attention: Figure 1 has it second."},
)

SINUSOIDS = {  # by the form of `formulas.sinusoids`
    form: Fault(sentence, 5)
    for form, sentence in {
        "from 1": "The positions count from 1 instead of 0.",
        "exchanged": "Sine and cosine are exchanged: even dimensions are sines.",
        "own exponents": "Each dimension has its own wavelength: a sine and its cosine must share "
        "one, so the exponent is 2i/d_model for both dimensions 2i and 2i + 1.",
        "double exponents": "The exponent is twice as large as it should be: i in 2i/d_model "
        "counts pairs of dimensions, not dimensions.",
        "halves": "All sines come first and then all cosines: the paper's formula alternates them. "
        "(It is the same up to the order of dimensions.)",
        "sines only": "All dimensions are sines: odd ones must be cosines.",
        "1000": "The base of the wavelengths is 1,000 instead of 10,000.",
        "multiplied": "The position is multiplied by 10000^(2i/d_model) instead of divided by it.",
        "radians of degrees": "The angles are in radians already; do not convert them.",
    }.items()
}
OTHER_TABLE = Fault("The table differs from the sinusoids of section 3.5.", 5)
COARSE_POSITIONS = Fault(
    "Distant positions share a row: compute the angles in float32 or wider, and cast last.", 5
)
NOT_ADDED = Fault("The layer must return its input plus the table of positions.", 5)

FUTURE_INVERTED = Fault(
    "The mask is inverted: True must stand where a position may be attended to, at itself and "
    "before it.",
    6,
)
FUTURE_TRANSPOSED = Fault(
    "The mask is transposed: rows are queries, so that the lower triangle is True.", 6
)
PADDING_INVERTED = Fault(
    "The mask is inverted: True must stand at real tokens, and False at padding (id 0).", 6
)
PADDING_SEEN = Fault("The mask hides nothing: it is also True at padding.", 6)
PADDING_AXIS = Fault(
    "The mask hides queries instead of keys: its shape must be (batch, 1, length).", 6
)
ADDITIVE = Fault(
    "This is an additive mask of 0 and -∞; here and in Keras a mask is boolean, True = may be "
    "attended to.",
    6,
)
NOT_BOOLEAN = Fault("The mask holds numbers; make it boolean, True = may be attended to.", 6)
WRONG_MASK = Fault("The mask differs from the one that is asked for.", 6)

NAN_ROW = Fault(
    "A query that may attend to nothing gets NaN: use a large negative number instead of -∞, and "
    "`where` to make its row 0.",
    6,
)
OVERFLOW = Fault(
    "Large scores overflow to NaN: subtract the row's maximum before the exponential, or use a "
    "softmax of the library.",
    3,
)
EQUAL_FEATURES = Fault(
    "A token whose features are all equal becomes NaN: add epsilon to the variance.", 8
)
RETURNED_WEIGHTS = Fault(
    "The output is right, but the weights that are returned are not those that it was made of.", 3
)
RANDOM = Fault(
    "Two calls with the same input differ: dropout is active outside of training, or weights are "
    "created in `call`.",
    10,
)
NO_OUTPUT_PROJECTION = Fault(
    "The output projection W^O is missing: concatenated heads are multiplied by a fourth matrix.", 4
)
WIDE_HEADS = Fault(
    "Each head is as wide as the whole layer: a head has width d_model / num_heads, and then all "
    "together cost as much as one.",
    4,
)
BATCH_NORMALIZATION = Fault(
    "This is batch normalization, whose statistics depend on the other sentences: use "
    "LayerNormalization.",
    8,
)
FUTURE = Fault("The future leaks: an output moves when a later token changes.", 6)
NEIGHBORS = Fault("A sentence's output depends on the other sentences of the batch.", 8)
TOKENS_MIXED = Fault("The output at one position depends on other positions; it must not.", 8)
