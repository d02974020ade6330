"""The JSON of requests, checked; the page of all requests shows it with examples that run."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_BEAMS = 16
MOST_NEW_TOKENS = 2048
MOST_SEED = 2**63 - 1

Strings = Annotated[list[str], Field(min_length=1)]
Temperature = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, le=1)]
NgramSize = Annotated[int, Field(ge=0, le=10)]
Penalty = Annotated[float, Field(ge=0.01, le=100)]
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
Suppressed = Annotated[
    list[Annotated[str, Field(max_length=128)]],
    Field(max_length=64, description="Texts never to be written."),
]
NewTokens = Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)]


def _example(**fields):
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Question(BaseModel):
    """A question to a model."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="Name of a model; null: the first of its task.")

    def options(self, *others: str) -> dict[str, Any]:
        """The options that the request gives: all but the model, its texts, and others."""
        return self.model_dump(exclude={"model", "texts", *others}, exclude_none=True)


class Texts(Question):
    """Texts for a model."""

    model_config = _example(texts=["April 22, 2019"])

    texts: Strings


class Translate(Texts):
    """Texts to translate."""

    model_config = _example(texts=["April 22, 2019"], beams=4, n_best=2, scores=True)

    target: str | None = Field(None, description="Language, of a model with language tags.")
    beams: int | None = Field(None, ge=1, le=MOST_BEAMS, description="Beam width; 1: greedy.")
    length_penalty: float | None = Field(None, ge=0, le=10, allow_inf_nan=False)
    no_repeat_ngram_size: NgramSize | None = None
    repetition_penalty: Penalty | None = None
    suppress: Suppressed | None = None
    n_best: int | None = Field(None, ge=1, le=MOST_BEAMS, description="Answers per text.")
    sentences: Literal["auto", "always", "never"] | None = Field(
        None, description="When texts are split; auto: if longer than the training data."
    )
    placeholders: list[Literal["url", "email", "path", "code", "tag", "number"]] | None = Field(
        None,
        max_length=6,
        description="Kinds of what is not translated; null: those of the training data.",
    )
    scores: bool = Field(False, description="Whether each answer has its score, in nats.")


class Fill(Texts):
    """Texts with one [MASK] each."""

    model_config = _example(texts=["The [MASK] barks."], number=3)

    number: int = Field(5, ge=1, le=1000, description="Words per text.")


class Generate(Texts):
    """Prompts to continue."""

    model_config = _example(texts=["ROMEO:"], max_tokens=20, temperature=0.8, seed=1)

    max_tokens: NewTokens = 100
    temperature: Temperature = 1.0
    top_k: int | None = Field(None, ge=1, le=1000)
    top_p: Probability = 1.0
    no_repeat_ngram_size: NgramSize = 0
    repetition_penalty: Penalty = 1.0
    suppress: Suppressed = []
    seed: Seed = 0
    stream: bool = Field(False, description="Whether one text arrives in server-sent events.")


class Inspection(Question):
    """A text for a model that is inspected."""

    text: str = Field(max_length=4096)


class Labels(Inspection):
    """A text for a model of which heads may be off: their numbers by the name of an attention."""

    model_config = _example(text="The [MASK] barks.")

    off: dict[str, list[int]] = Field({}, max_length=256, description="Heads that are off, from 0.")


class Masked(Labels):
    """A text for a model that may do without heads, or without the look-ahead mask."""

    look_ahead: bool = Field(
        True, description="false: a decoder also sees the tokens that follow; others never differ."
    )


class Attention(Masked):
    """A text and its answer, whose attention weights are asked for."""

    model_config = _example(text="April 22, 2019")

    answer: str | None = Field(None, max_length=4096, description="A translation; null: greedy.")


class Beams(Inspection):
    """A text to translate by beam search."""

    model_config = _example(text="April 22, 2019", beams=4)

    beams: int = Field(4, ge=1, le=8)
    length_penalty: float = Field(0.6, ge=0, le=5)


class Next(Masked):
    """A text whose next token is asked for, or a token of its translation by greedy decoding."""

    model_config = _example(text="ROMEO:", temperature=0.8)

    temperature: float = Field(1.0, ge=0, le=10, description="0: all on the most probable token.")
    number: int = Field(12, ge=1, le=50, description="Number of tokens to return.")
    position: int = Field(0, ge=0, description="Number of the token of a translation, from 0.")


class Completion(BaseModel):
    """A request of OpenAI's completions; other fields of theirs are ignored."""

    model_config = _example(model="shakespeare", prompt="ROMEO:")

    model: str
    prompt: str | Strings
    max_tokens: NewTokens = 16
    temperature: Temperature = 1.0
    top_p: Probability = 1.0
    n: int = Field(1, ge=1, le=128, description="Completions per prompt.")
    seed: Seed | None = Field(None, description="Random seed; null: another one each time.")
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    echo: bool = False
    stream: bool = False

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, fields: Any) -> Any:
        """Fields that are null have their defaults, as OpenAI's have."""
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


class LibreTranslate(BaseModel):
    """A request of LibreTranslate, as JSON or as a form; other fields of theirs are ignored."""

    model_config = _example(q="你好。", source="zh", target="en")

    q: str | Strings
    source: str = "auto"
    target: str
    alternatives: int = Field(0, ge=0, lt=MOST_BEAMS)
    api_key: str = ""
