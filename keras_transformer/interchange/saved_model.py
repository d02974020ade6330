"""SavedModel: text in, text out, for TensorFlow and TensorFlow Serving.

Tokenizers, search and caches are in the graph. A program that loads it imports `tensorflow` and
`tensorflow_text`, neither Keras nor this package.
"""

import functools
import hashlib
import pathlib

from ..checks import Library
from ..ids import END, PADDING, UNKNOWN
from ..tasks import Classifier, MaskFiller, Tagger, Task, TextGenerator, Translator
from ..tokenizers.normal_forms import INVISIBLE
from ..tokenizers.processor import has_unused, make_processor
from ..tokenizers.words import FIRST, MASK, MASKED, SEGMENTATIONS
from . import graphs
from .tracing import quiet, save, tf, traced
from .vocabularies import SETTINGS, sentencepiece_model, settings_of, write_json

tensorflow_text = Library("tensorflow_text", "The export to SavedModel", "tensorflow-text")

BLANK = r"[\t-\r\x1c-\x20\x{85}\p{Z}]*"  # \s of Python, as RE2 knows it
NUMBER = 5  # of predictions for a masked word


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes a task as a SavedModel with signatures for texts.

    A `Translator` has "translate", greedy, which is the default, and "translate_beam4" (or the
    beams of its own config): texts to translations; and "num_tokens", of texts. A `TextGenerator`
    has "generate", greedy: prompts and max_tokens to texts. A `Tagger` has "tag": texts to words
    and tags, padded with "". A `Classifier` has "classify": texts to labels and to the
    probabilities of all labels. A `MaskFiller` has "fill": texts to words and their probabilities.

    Args:
        task: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: str, number type of the weights; None: float32.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task.
    """
    task, module = graphs.in_float32(task), tf.Module()
    with quiet():
        if isinstance(task, Translator):
            functions = _translation(task, module)
        elif isinstance(task, TextGenerator):
            functions = _generation(task, module)
        else:
            functions = _words(task, module)
        module.weights = [variable.value for variable in task.model.variables]
        signatures = {name: traced(graph) for name, graph in functions.items()}
        signatures["serving_default"] = next(iter(signatures.values()))
        save(module, folder, signatures)
    if isinstance(task, Translator):
        write_json(folder / SETTINGS, settings_of(task))


_TEXTS = {"texts": ((None,), "string")}


def _translation(translator, module):
    source = _reader(translator.source_tokenizer, module)
    target = module.target = _tokenizer(translator.target_tokenizer)
    beams = graphs.beams_of(translator)

    def num_tokens(texts):
        texts = _normalized(texts, translator.normalization, translator.lowercase)
        return {"num_tokens": source(texts).row_lengths()}

    def translate(texts, search):
        texts = _normalized(texts, translator.normalization, translator.lowercase)
        is_blank = tf.strings.regex_full_match(texts, BLANK)
        ids = _checked(source(texts).to_tensor(PADDING), translator.longest_input)
        ids = tf.where(is_blank[:, None], PADDING, ids)
        return {"translations": _text(target, search(ids)["ids"])}

    searches = {
        name: functools.partial(translate, search=graphs.translation(translator, number))
        for name, number in {"translate": 1, f"translate_beam{beams}": beams}.items()
    }
    found = {name: graphs.Graph(search, _TEXTS) for name, search in searches.items()}
    return {**found, "num_tokens": graphs.Graph(num_tokens, _TEXTS)}


def _generation(generator, module):
    tokenizer = module.tokenizer = _tokenizer(generator.tokenizer)
    search = graphs.continuation(generator)

    def generate(prompts, max_tokens):
        prompts = _normalized(prompts, generator.normalization)
        prompt_ids = tokenizer.tokenize(prompts).to_tensor(PADDING)
        ids = search(prompt_ids, max_tokens)["ids"]
        # The prompt is not taken from its ids: they lack the characters that have none.
        before, after = _text(tokenizer, prompt_ids), _text(tokenizer, ids)
        start = tf.strings.length(before, "UTF8_CHAR")
        rest = tf.strings.substr(
            after, start, tf.strings.length(after, "UTF8_CHAR") - start, "UTF8_CHAR"
        )
        return {"texts": tf.strings.join([prompts, rest])}

    inputs = {"prompts": ((None,), "string"), "max_tokens": ((), "int32")}
    return {"generate": graphs.Graph(generate, inputs)}


def _words(task, module):
    reader = _WordReader(task, module, masked=isinstance(task, MaskFiller))
    labels = tf.constant(task.labels)
    probabilities = graphs.probabilities(task)

    def tag(texts):
        words = reader.split(texts)
        best = tf.argmax(probabilities(*reader.ids(words))["probabilities"], axis=-1)
        words = words.to_tensor("")
        length = tf.shape(words)[1]  # that of the ids is at least 1
        tags = tf.where(words == "", "", tf.gather(labels, best[:, :length]))
        return {"words": words, "tags": tags}

    def classify(texts):
        p = probabilities(*reader.ids(reader.split(texts)))["probabilities"]
        return {"labels": tf.gather(labels, tf.argmax(p, axis=-1)), "probabilities": p}

    def fill(texts):
        word_ids, character_ids = reader.ids(reader.split(texts))
        is_masked = word_ids == MASK
        tf.debugging.assert_equal(
            tf.reduce_sum(tf.cast(is_masked, tf.int32), 1), 1, f"Every text must have one {MASKED}."
        )
        p = probabilities(word_ids, character_ids)["probabilities"]
        words = labels[FIRST - 1 :]  # neither unknown nor masked
        p = tf.boolean_mask(p, is_masked)[:, FIRST - 1 :]
        p, best = tf.math.top_k(p, min(NUMBER, words.shape[0]))
        return {"words": tf.gather(words, best), "probabilities": p}

    kinds = {Tagger: tag, Classifier: classify, MaskFiller: fill}
    function = next(kinds[kind] for kind in kinds if isinstance(task, kind))
    return {function.__name__: graphs.Graph(function, _TEXTS)}


def _reader(tokenizer, module):
    """A function of texts to their ids, END included, ragged; see `processor.encode`."""
    source = module.source = _tokenizer(tokenizer, add_end=True)
    processor = make_processor(tokenizer.proto)
    if not has_unused(processor):
        return source.tokenize
    numbers = filter(processor.is_unused, range(processor.vocab_size()))
    unused = {processor.id_to_piece(number): number for number in numbers}
    pieces = module.pieces = _tokenizer(tokenizer, add_end=True, out_type=tf.string)
    table = module.unused = _table([], unused)

    def read(texts):
        ids, found = source.tokenize(texts), table.lookup(pieces.tokenize(texts).flat_values)
        known = tf.where(ids.flat_values == UNKNOWN, found, ids.flat_values)
        return ids.with_flat_values(known)

    return read


def _tokenizer(tokenizer, add_end=False, out_type=None):
    model = sentencepiece_model(tokenizer, "A SavedModel")
    # A vocabulary is found by its name, in all graphs of a process: equal names, one vocabulary.
    name = f"vocabulary_{hashlib.blake2b(model, digest_size=16).hexdigest()}"
    return tensorflow_text.SentencepieceTokenizer(
        model, out_type=out_type or tf.int32, add_eos=add_end, name=name
    )


def _normalized(texts, normalization, lowercase=False):
    """`normal_forms.normalized`, as operations of TensorFlow."""
    if normalization is not None:
        texts = tf.strings.regex_replace(texts, INVISIBLE, "")
        texts = tensorflow_text.normalize_utf8(texts, normalization)
    if lowercase:
        texts = tf.strings.lower(texts, "utf-8")
        if normalization is not None:
            texts = tensorflow_text.normalize_utf8(texts, normalization)
    return texts


def _text(tokenizer, ids):
    """`SentencePieceTokenizer.decode`: up to END, without padding."""
    ended = tf.cumsum(tf.cast(ids == END, tf.int32), axis=1) > 0
    return tokenizer.detokenize(tf.ragged.boolean_mask(ids, ~ended & (ids != PADDING)))


def _checked(ids, longest):
    """The ids, which nothing reads before their length has been checked."""
    message = f"A text must have at most {longest} tokens. Split it."
    check = tf.debugging.assert_less_equal(tf.shape(ids)[1], longest, message)
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(ids)


class _WordReader:
    """`WordVocabulary.split` and `encode` on tensors of strings."""

    def __init__(self, task, module, masked=False):
        vocabulary = task.vocabulary
        self.longest = task.longest_input
        self.most = vocabulary.max_characters
        self.words = _table(vocabulary.words, {MASKED.lower(): MASK} if masked else {})
        self.characters = _table(vocabulary.characters)
        self.masked = masked
        self.normalization = vocabulary.normalization
        word = SEGMENTATIONS[vocabulary.segmentation].portable
        self.word = rf"\[MASK\]|{word}" if masked else word
        module.tables = [self.words, self.characters]  # a SavedModel holds what it can reach

    def split(self, texts):
        """The words of each text, ragged."""
        texts = _normalized(texts, self.normalization)
        pieces = tensorflow_text.regex_split(texts, self.word, self.word)
        return tf.ragged.boolean_mask(pieces, tf.strings.regex_full_match(pieces, self.word))

    def ids(self, words):
        """int32, (batch, length) and (batch, length, characters), of at least one column."""
        flat = words.flat_values
        word_ids = self.words.lookup(tf.strings.lower(flat, "utf-8"))
        character_ids = self._spellings(flat)
        ids = [words.with_flat_values(x).to_tensor(PADDING) for x in (word_ids, character_ids)]
        missing = tf.maximum(1 - tf.shape(ids[0])[1], 0)
        ids[0] = tf.pad(ids[0], [[0, 0], [0, missing]])
        ids[1] = tf.pad(ids[1], [[0, 0], [0, missing], [0, 0]])
        return [_checked(ids[0], self.longest), ids[1]]

    def _spellings(self, words):
        """int32, (words, characters): a longer word keeps its first and its last ones."""
        characters = tf.strings.unicode_split(words, "UTF-8")
        ids = characters.with_flat_values(self.characters.lookup(characters.flat_values))
        lengths = tf.cast(ids.row_lengths(), tf.int32)[:, None]
        ids = tf.pad(ids.to_tensor(PADDING), [[0, 0], [0, 1]])  # a last one for all that is beyond
        own = tf.range(self.most)
        left_out = tf.where(own < self.most // 2, 0, tf.maximum(lengths - self.most, 0))
        ids = tf.gather(ids, tf.minimum(own + left_out, tf.shape(ids)[1] - 1), batch_dims=1)
        ids = tf.where(own < lengths, ids, PADDING)
        if not self.masked:
            return ids
        return tf.where(words[:, None] == MASKED, tf.where(own == 0, MASK, PADDING), ids)


def _table(strings, others=()):
    """A tf.lookup table from strings to ids; `others` have ids of their own."""
    ids = {string: n for n, string in enumerate(strings, start=FIRST)} | dict(others)
    keys, values = tf.constant(list(ids), tf.string), tf.constant(list(ids.values()), tf.int32)
    entries = tf.lookup.KeyValueTensorInitializer(keys, values)
    return tf.lookup.StaticHashTable(entries, UNKNOWN)
