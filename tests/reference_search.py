"""Beam search as the documentation of `Decoding.beam_search` describes it: slow, plain, and right.

One sentence at a time, one call of the model per hypothesis and token: no cache, no vectorization.
"""

import numpy as np

from keras_transformer.ids import END, PADDING, START


def beam_search(
    next_log_probabilities,
    max_length,
    beams=4,
    length_penalty=0.6,
    n_best=1,
    min_length=0,
    prefix=(),
    trace=None,
):
    """The best hypotheses for one sentence.

    Args:
        next_log_probabilities: function of the tuple of ids so far to the log-probability of each
            id as the next one, float64; see `model_log_probabilities`.
        max_length, beams, length_penalty, n_best, min_length, prefix: as in `Decoding.beam_search`.
        trace: list or None, receives (extensions, finished, bound) after each step.

    Returns:
        list of (ids, score, whether it is finished), best first, at most `n_best`.
    """

    def score(log_p, length):
        return log_p / ((5 + length) / 6) ** length_penalty

    live, finished = [(0.0, ())], []
    for position in range(max_length):
        extensions = [
            (log_p + of_token, (*ids, token))
            for log_p, ids in live
            for token, of_token in enumerate(next_log_probabilities(ids))
            if allowed(token, position, min_length, prefix)
        ]
        extensions.sort(reverse=True)
        ending = [(log_p, ids) for log_p, ids in extensions[:beams] if ids[-1] == END]
        finished += [(score(log_p, len(ids)), ids) for log_p, ids in ending]
        finished = sorted(finished, reverse=True)[:beams]
        live = [(log_p, ids) for log_p, ids in extensions if ids[-1] != END][:beams]
        bound = score(live[0][0], max_length) if live else -np.inf
        if trace is not None:
            trace.append((extensions, finished, bound))
        if finished[n_best - 1 :] and finished[n_best - 1][0] >= bound:
            break
        if finished and beams == 1:
            break
    cut_off = sorted([(score(log_p, len(ids)), ids) for log_p, ids in live], reverse=True)
    found = [(ids, s, True) for s, ids in finished] + [(ids, s, False) for s, ids in cut_off]
    return found[:n_best]


def allowed(token, position, min_length, prefix):
    """Whether a token may be written at a position."""
    if position < len(prefix):
        return token == prefix[position]
    return token not in (PADDING, START) and not (token == END and position < min_length)


def model_log_probabilities(model, source_ids, length):
    """The argument of `beam_search`: the log-softmax of the model's teacher-forced logits.

    Args:
        model: `Transformer` or `LanguageModel`.
        source_ids: sequence of int, one sentence; None for a `LanguageModel`.
        length: int, to which the ids read are padded, so that one shape is compiled.

    Returns:
        function of a tuple of ids to float64, (vocabulary size,).
    """

    def next_log_probabilities(ids):
        read = [START, *ids]
        read = np.array([read + [PADDING] * (length - len(read))], "int32")
        inputs = {"token_ids": read}
        if source_ids is not None:
            inputs = {"source_ids": np.array([source_ids], "int32"), "target_ids": read}
        logits = model.predict_on_batch(inputs)[0, len(ids)].astype("float64")
        return logits - np.log(np.exp(logits).sum())

    return next_log_probabilities
