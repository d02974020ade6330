import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.ids import END

TEXT = "Monday, July 4, 1776"


@pytest.fixture(scope="module")
def tree(dates_translator):
    return dates_translator.beam_tree(TEXT, n_best=3, beams=3, length_penalty=0.7)


def paths(tree):
    """The ids along each branch of each position."""
    written, before = [], [[]]
    for branches in tree:
        before = [[*before[branch.parent], branch.token] for branch in branches]
        written.append(before)
    return written


def test_the_finished_branches_of_a_beam_tree_are_the_hypotheses_of_the_search(
    dates_translator, tree
):
    found = dates_translator.translate(
        [TEXT], beams=3, length_penalty=0.7, n_best=3, return_scores=True
    )[0]
    finished = {
        dates_translator.target_tokenizer.decode([ids])[0]: branch.score
        for written, branches in zip(paths(tree), tree, strict=True)
        for ids, branch in zip(written, branches, strict=True)
        if branch.finished
    }
    assert found[0].text == "1776-07-04" and all(hypothesis.finished for hypothesis in found)
    for hypothesis in found:
        assert finished[hypothesis.text] == pytest.approx(hypothesis.score, abs=1e-4)


def test_a_branch_has_the_log_probability_of_its_tokens(dates_translator, tree):
    source = dates_translator.source_tokenizer.encode([TEXT])[0]
    for written, branches in list(zip(paths(tree), tree, strict=True))[:4]:
        for ids, branch in zip(written, branches, strict=True):
            inputs = {"source_ids": [[*source, END]], "target_ids": [[kt.START, *ids[:-1]]]}
            inputs = {name: np.array(x, "int32") for name, x in inputs.items()}
            logits = np.array(dates_translator.transformer.predict(inputs, verbose=0))[0]
            log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
            expected = sum(log_p[n, token] for n, token in enumerate(ids))
            assert branch.score == pytest.approx(expected, abs=1e-3)


def test_each_position_has_the_live_branches_best_first_and_then_the_finished(tree):
    assert len(tree[0]) == 3
    for position, branches in enumerate(tree):
        live = [branch.score for branch in branches if not branch.finished]
        assert live == sorted(live, reverse=True) and len(live) == 3
        for branch in branches:
            assert branch.finished == (branch.token == END)
            if position:
                parent = tree[position - 1][branch.parent]
                assert not parent.finished and (branch.finished or branch.score <= parent.score)
    assert any(branch.finished for branches in tree for branch in branches)


def test_a_blank_text_has_an_empty_tree(dates_translator):
    assert dates_translator.beam_tree(" ") == []
