"""Text to ids and back by byte-level BPE, the vocabulary of GPT-2."""

import keras

from .base import Tokenizer
from .byte_pairs import BytePairs, library_of, read_library


@keras.saving.register_keras_serializable(package="keras_transformer")
class ByteLevelTokenizer(Tokenizer):
    """A vocabulary of byte-level BPE: 0 is padding, 1 unknown, 2 start, 3 end.

    Every byte has a token, so no text contains anything unknown, and decode(encode(text)) == text.
    Names of special tokens in a text are text.

    Args:
        serialized: bytes, a tokenizer.json as the library `tokenizers` writes it; None:
            `load_assets` will provide it. See `of_pairs`.

    Raises:
        ImportError: tokenizers is not installed.
        ValueError: It is not a byte-level BPE, or has other special ids.

    Source: Radford et al. 2019, section 2.2; Sennrich et al. 2016 (BPE).
    """

    vocabulary_file = "tokenizer.json"

    @classmethod
    def of_pairs(cls, pairs: BytePairs) -> "ByteLevelTokenizer":
        """The tokenizer whose ids are the four special ones, then the tokens in their order.

        Args:
            pairs: `BytePairs`, without special tokens.

        Raises:
            ImportError: tokenizers is not installed.
            ValueError: A byte has no token, a token is duplicated, is not of byte-level BPE or
                has no merge, or a merge is not of tokens.
        """
        return cls(library_of(pairs).to_str().encode())

    def vocabulary_size(self) -> int:
        """int, number of ids, the four special ones included."""
        return self._ready().get_vocab_size()

    def _read(self, serialized):
        return read_library(serialized)

    def _encode(self, texts):
        found = self._processor.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in found]

    def _sample(self, texts, alpha, seed):
        raise ValueError(
            "Byte-level BPE has one segmentation per text; subword regularization needs a "
            "SentencePieceTokenizer; received sample=True."
        )

    def _texts(self, rows):
        return self._processor.decode_batch(rows, skip_special_tokens=False)

    def _token(self, id):
        return self._processor.id_to_token(id)
