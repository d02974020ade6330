import pytest

from keras_transformer.generation.configuration import GenerationConfig, SamplingConfig


@pytest.mark.parametrize("name", ["beams", "batch_size", "tokens_per_batch"])
@pytest.mark.parametrize("size", [0, -2, 1.5, "2"])
def test_a_number_for_decoding_that_is_not_a_positive_integer_is_an_error(name, size):
    message = rf"^{name} must be an integer of at least 1; received {name}={size!r}\.$"
    with pytest.raises(ValueError, match=message):
        GenerationConfig(**{name: size})


def test_a_negative_length_penalty_is_an_error():
    with pytest.raises(ValueError, match=r"^length_penalty must be at least 0; received length_"):
        GenerationConfig(length_penalty=-0.1)


@pytest.mark.parametrize(
    "config, name",
    [
        (GenerationConfig, "length_penalty"),
        (GenerationConfig, "min_length_ratio"),
        (GenerationConfig, "max_length_ratio"),
        (SamplingConfig, "temperature"),
        (SamplingConfig, "top_p"),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None])
def test_what_is_not_a_finite_number_is_an_error_that_names_it(config, name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        config(**{name: value})


@pytest.mark.parametrize(
    "ratios",
    [
        dict(min_length_ratio=-0.1),
        dict(min_length_ratio=2.1),
        dict(max_length_ratio=0.0),
        dict(min_length_ratio=0.5, max_length_ratio=0.4),
    ],
)
def test_ratios_of_lengths_that_leave_no_answer_are_an_error(ratios):
    with pytest.raises(ValueError, match="0 <= min_length_ratio <= max_length_ratio.* received"):
        GenerationConfig(**ratios)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(temperature=0.0), r"temperature must be above 0; received temperature=0\.0\."),
        (dict(temperature=-1.0), r"temperature must be above 0; received temperature=-1\.0\."),
        (dict(top_k=0), r"top_k must be an integer of at least 1; received top_k=0\."),
        (dict(top_k=2.5), r"top_k must be an integer of at least 1; received top_k=2\.5\."),
        (dict(top_p=0.0), r"top_p must be above 0 and at most 1; received top_p=0\.0\."),
        (dict(top_p=1.1), r"top_p must be above 0 and at most 1; received top_p=1\.1\."),
    ],
)
def test_a_distribution_that_nothing_can_be_sampled_from_is_an_error(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        SamplingConfig(**arguments)
