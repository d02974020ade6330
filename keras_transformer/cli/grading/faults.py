"""What learners write instead of the paper's formulas: a sentence and a chapter for each fault."""

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


SCALE = [
    Fault(
        "The scores are not scaled: divide Q K^T by √d_k before the softmax, or it saturates.",
        3,
        {"scale": "none"},
    ),
    Fault(
        "The scale comes after the softmax: the rows of weights sum to 1/√d_k instead of 1.",
        3,
        {"scale": "after the softmax"},
    ),
    Fault(
        "The scores are divided by d_k instead of its square root: the weights are almost equal.",
        3,
        {"scale": "d_k"},
    ),
    Fault("The scores are multiplied by √d_k instead of divided by it.", 3, {"scale": "times"}),
    Fault(
        "The scale is √d_model, the width of the layer, instead of √d_k, the width of one head.",
        4,
        {"scale": "sqrt(d_model)"},
    ),
    Fault(
        "The scale is the root of the number of keys instead of √d_k, the width of one key.",
        3,
        {"scale": "sqrt(length)"},
    ),
]

SOFTMAX = [
    Fault(
        "The softmax runs over the queries instead of the keys: the weights of one query must sum "
        "to 1, so take it over the last axis.",
        3,
        {"axis": "queries"},
    ),
    Fault(
        "The softmax runs over the sentences of the batch instead of the keys: take it over the "
        "last axis.",
        3,
        {"axis": "batch"},
    ),
    Fault(
        "There is no softmax: the scores themselves weight the values.",
        3,
        {"normalization": "none"},
    ),
    Fault(
        "A sigmoid stands in place of the softmax: the weights of one query do not sum to 1.",
        3,
        {"normalization": "sigmoid"},
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
    Fault(
        "The heads are mixed up when they are split: reshape to (batch, length, heads, width), "
        "then transpose; a reshape alone mixes tokens.",
        4,
        {"heads": "mixed split"},
    ),
    Fault(
        "The heads are mixed up when they are joined: transpose back to (batch, length, heads, "
        "width) before the reshape.",
        4,
        {"heads": "mixed join"},
    ),
    Fault(
        "The heads are mixed up: a reshape without a transposition, before and after the "
        "attention, mixes tokens with heads.",
        4,
        {"heads": "mixed both"},
    ),
    Fault(
        "There is only one head: the projections are not split, whatever num_heads says.",
        4,
        {"heads": "one"},
    ),
]

MASK = [
    Fault(
        "The mask is inverted: True means that a position may be attended to, not that it is "
        "hidden.",
        6,
        {"mask": "inverted"},
    ),
    Fault(
        "The mask has no effect: hidden positions, such as padding, are attended to.",
        6,
        {"mask": "ignored"},
    ),
    Fault(
        "Hidden scores are set to 0, which is not a weight of 0: set them to -∞ (or -1e9) before "
        "the softmax.",
        6,
        {"mask": "zero score"},
    ),
    Fault(
        "Hidden weights are set to 0 after the softmax, so that the rest no longer sums to 1: hide "
        "the scores before it.",
        6,
        {"mask": "zero weight"},
    ),
    Fault(
        "The mask is added to the scores as 0 and 1: turn it into 0 and -∞ (or -1e9) first.",
        6,
        {"mask": "added"},
    ),
    Fault("The mask is transposed: rows are queries, columns are keys.", 6, {"mask": "transposed"}),
]

MEMORY_MASK = [
    dataclasses.replace(fault, changes={"memory_mask": fault.changes["mask"]}) for fault in MASK
]

LOOK_AHEAD = [
    Fault(
        "The future leaks: nothing hides later tokens of the target from earlier ones.",
        6,
        {"look_ahead": "none"},
    ),
    Fault(
        "The future leaks by one: each position sees the next one, the word that it must predict.",
        6,
        {"look_ahead": "leak by one"},
    ),
    Fault(
        "A position does not see itself, and the first one sees nothing: keep the diagonal.",
        6,
        {"look_ahead": "not itself"},
    ),
]

RESIDUAL = [
    Fault(
        "There is no residual connection: add the input of each sublayer to its output.",
        8,
        {"residual": "none"},
    ),
    Fault(
        "There is no residual connection around the feed-forward network.",
        8,
        {"residual": "attention only"},
    ),
    Fault(
        "There is no residual connection around the attention.",
        8,
        {"residual": "feed-forward only"},
    ),
]

NORM = [
    Fault(
        "The normalization runs over the batch, so that a sentence depends on its neighbors: "
        "normalize each token over its features.",
        8,
        {"norm_axis": "batch"},
    ),
    Fault(
        "The normalization runs over the positions of a sentence: normalize each token over its "
        "features.",
        8,
        {"norm_axis": "length"},
    ),
    Fault(
        "The normalization runs over batch and positions, as batch normalization does: normalize "
        "each token over its features.",
        8,
        {"norm_axis": "batch and length"},
    ),
    Fault(
        "The normalization runs over all tokens of a sentence together: normalize each token over "
        "its features alone.",
        8,
        {"norm_axis": "length and features"},
    ),
    Fault(
        "The normalization divides by the variance instead of its square root.",
        8,
        {"norm_form": "variance"},
    ),
    Fault(
        "The variance is divided by n - 1 instead of n, the number of features.",
        8,
        {"norm_form": "n - 1"},
    ),
    Fault(
        "The mean is not subtracted: this is RMS normalization, not layer normalization.",
        8,
        {"norm_form": "no mean"},
    ),
]

SUBLAYERS = [
    Fault("There is no layer normalization.", 8, {"norm": "none"}),
    Fault(
        "Only the last sublayer is normalized: each one has its own layer normalization.",
        8,
        {"norm": "last only"},
    ),
]

FEED_FORWARD = [
    Fault(
        "There is no activation between the two layers of the feed-forward network: two linear "
        "maps are one.",
        8,
        {"feed_forward": "linear"},
    ),
    Fault(
        "There is an activation behind the second layer of the feed-forward network, too: only the "
        "inner one has a ReLU.",
        8,
        {"feed_forward": "relu twice"},
    ),
]

MEMORY = [
    *(
        Fault(
            "Cross-attention reads the target instead of the memory: its keys and values come from "
            "the encoder.",
            7,
            {"memory": source},
        )
        for source in ("target", "input")
    ),
    Fault(
        "Cross-attention comes before the self-attention: Figure 1 has it second.",
        9,
        {"order": "cross first"},
    ),
]

SINUSOIDS = {  # the form of `formulas.sinusoids`: a fault
    "from 1": Fault("The positions count from 1 instead of 0.", 5),
    "exchanged": Fault("Sine and cosine are exchanged: even dimensions are sines.", 5),
    "own exponents": Fault(
        "Each dimension has its own wavelength: a sine and its cosine must share one, so the "
        "exponent is 2i/d_model for both dimensions 2i and 2i + 1.",
        5,
    ),
    "double exponents": Fault(
        "The exponent is twice as large as it should be: i in 2i/d_model counts pairs of "
        "dimensions, not dimensions.",
        5,
    ),
    "halves": Fault(
        "All sines come first and then all cosines: the paper's formula alternates them. (It is "
        "the same up to the order of dimensions.)",
        5,
    ),
    "sines only": Fault("All dimensions are sines: odd ones must be cosines.", 5),
    "1000": Fault("The base of the wavelengths is 1,000 instead of 10,000.", 5),
    "multiplied": Fault(
        "The position is multiplied by 10000^(2i/d_model) instead of divided by it.", 5
    ),
    "radians of degrees": Fault("The angles are in radians already; do not convert them.", 5),
}
OTHER_TABLE = Fault("The table differs from the sinusoids of section 3.5.", 5)
COARSE_POSITIONS = Fault(
    "Distant positions share a row: compute the angles in float32 or wider, and cast last.", 5
)
NOT_ADDED = Fault("The layer must return its input plus the table of positions.", 5)

MASKS_OF_THE_FUTURE = {  # what makes the mask from np.tri: a fault
    "inverted": Fault(
        "The mask is inverted: True must stand where a position may be attended to, at itself and "
        "before it.",
        6,
    ),
    "transposed": Fault(
        "The mask is transposed: rows are queries, so that the lower triangle is True.", 6
    ),
    "leak by one": LOOK_AHEAD[1],
    "not itself": LOOK_AHEAD[2],
    "all": LOOK_AHEAD[0],
}
PADDING_INVERTED = Fault(
    "The mask is inverted: True must stand at real tokens, and False at padding (id 0).", 6
)
PADDING_SEEN = Fault("The mask hides nothing: it is True at padding, too.", 6)
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
