"""The limits of a server. This module needs no other package, since --help shows them."""

import dataclasses
import logging

from ..checks import Configuration, check_above_0, check_at_least

LOG = logging.getLogger("keras_transformer.serving")  # texts are DEBUG


@dataclasses.dataclass(frozen=True)
class Limits(Configuration):
    """The most that one server does.

    Args:
        max_body: Most bytes of a request.
        max_texts: Most texts per request.
        max_tokens: Most tokens per text; a model with fewer positions reads fewer.
        max_queue: Most texts that wait for a model.
        max_streams: Most streamed answers of a model at a time.
        max_batch: Most texts that are answered together.
        max_compiled: Tokens of the longest text for which programs are compiled at the start; for
            a longer one they are compiled when it arrives.
        timeout: Seconds from the head of a request to the end of its answer.

    Raises:
        ValueError: A limit is not above 0.
    """

    max_body: int = 2**20
    max_texts: int = 128
    max_tokens: int = 512
    max_queue: int = 1024
    max_streams: int = 4
    max_batch: int = 32
    max_compiled: int = 64
    timeout: float = 60.0

    def __post_init__(self):
        numbers = dataclasses.asdict(self)
        check_above_0(timeout=numbers.pop("timeout"))
        check_at_least(1, **numbers)
