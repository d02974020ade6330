"""Run an exported model without Keras and without this package.

  python scripts/run_exported.py en-de-onnx --beams 5 < lines.en
  python scripts/run_exported.py en-de-saved_model --json answers.json < lines.en

The folder is one that `keras-transformer export` wrote, in any format but Keras's own. A line of
the standard input is one text; a line of the output is its translation, its continuation, its label
and probability, its words with their tags, or the words for its mask. Copy what you need: each
engine is one short function here. Translators split texts into sentences and keep placeholders with
this package, for which it needs no Keras.
"""

import argparse
import collections
import functools
import json
import logging
import os
import pathlib
import re
import sys
import time
import unicodedata

import numpy as np

BATCH_SIZE = 64
BEST = 5  # words for a mask
OF_LOGITS = ("no_repeat_ngram_size", "repetition_penalty", "suppress")  # in settings.json, if used
LINE_ENDS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


class ByteLevel:
    """A vocabulary of byte-level BPE with the methods of a SentencePiece processor."""

    def __init__(self, path):
        import tokenizers

        library = tokenizers.Tokenizer.from_file(str(path))
        self.encode = lambda text: library.encode(text).ids
        self.decode = lambda ids: library.decode(ids, skip_special_tokens=False)
        self.id_to_piece, self.piece_to_id = library.id_to_token, library.token_to_id


def settings_of(folder):
    """The form of texts, the ids and the options that the export has written."""
    if not (folder / "settings.json").exists():  # a Marian model of other origin
        return {}
    return json.loads((folder / "settings.json").read_text("utf-8"))


def normalized(text, settings):
    """A text in the form of the training data."""

    def in_form(text):
        form = settings.get("normalization")
        return unicodedata.normalize(form, text) if form else text

    if settings.get("invisible"):  # a pattern
        text = re.sub(settings["invisible"], "", text)
    text = in_form(text)
    return in_form(text.lower()) if settings.get("lowercase") else text


class Ids:
    """Texts to ids and back, by the files next to the graphs."""

    def __init__(self, folder):
        self.folder, self.settings = folder, settings_of(folder)
        self.special = self.settings["special_ids"]
        self.end = self.special.get("end")
        self.vocabulary = {}
        for path in folder.glob("*.spm"):
            import sentencepiece

            self.vocabulary[path.stem] = sentencepiece.SentencePieceProcessor(model_file=str(path))
        for stem in ("source", "target", "tokenizer"):
            if (path := folder / f"{stem}.json").exists():
                self.vocabulary["vocabulary" if stem == "tokenizer" else stem] = ByteLevel(path)
        if not self.vocabulary:
            self.words = self._numbered("words")
            self.characters = self._numbered("characters")

    def _numbered(self, name):
        first = self.special["first"]
        return {string: n for n, string in enumerate(self.settings[name], start=first)}

    def normalized(self, text):
        """A text in the form of the training data."""
        return normalized(text, self.settings)

    def of_source(self, text):
        """The ids of a text to translate; none if it is blank."""
        text = self.normalized(text)
        if not text.strip():
            return []
        vocabulary, unknown = self.vocabulary["source"], self.special["unknown"]
        ids = vocabulary.encode(text)
        if unknown in ids and not isinstance(vocabulary, ByteLevel):
            # Unknown characters that together are a piece of the other language are that piece.
            pieces = map(vocabulary.piece_to_id, vocabulary.encode(text, out_type=str))
            ids = [
                piece if each == unknown and vocabulary.is_unused(piece) else each
                for each, piece in zip(ids, pieces, strict=True)
            ]
        return [*ids, self.end] if ids else []

    def num_tokens(self, texts):
        """The number of tokens of each text to translate."""
        return [len(self.of_source(text)) for text in texts]

    def of_prompt(self, text):
        """The ids of a text to continue."""
        return self.vocabulary["vocabulary"].encode(self.normalized(text))

    def text(self, ids, vocabulary):
        """The text of ids up to the end, without padding."""
        ids = [int(i) for i in ids]
        ids = ids[: ids.index(self.end)] if self.end in ids else ids
        return self.vocabulary[vocabulary].decode([i for i in ids if i != self.special["padding"]])

    def continued(self, prompt, ids):
        """A prompt with its continuation."""
        before = self.text(self.of_prompt(prompt), "vocabulary")
        return self.normalized(prompt) + self.text(ids, "vocabulary")[len(before) :]

    def split(self, text):
        """The words of a text, [MASK] included where the task fills masks."""
        pattern = self.settings["word_pattern"]
        if self.settings["task"] == "MaskFiller":
            pattern = rf"\[MASK\]|{pattern}"
        return re.findall(pattern, self.normalized(text))

    def of_words(self, words):
        """The id of each word, and those of its characters."""
        unknown, most = self.special["unknown"], self.settings["max_characters"]
        character_ids = np.zeros((len(words), most), "int32")
        word_ids = np.array([self.words.get(word.lower(), unknown) for word in words], "int32")
        for n, word in enumerate(words):
            if word == "[MASK]" and self.settings["task"] == "MaskFiller":
                word_ids[n] = character_ids[n, 0] = self.special["masked"]
                continue
            if len(word) > most:  # its first and its last characters
                word = word[: most // 2] + word[most // 2 - most :]
            character_ids[n, : len(word)] = [self.characters.get(one, unknown) for one in word]
        return word_ids, character_ids


def pad(sequences):
    """One int32 array, padded with 0."""
    length = max(1, *map(len, sequences))
    rows = np.zeros((len(sequences), length, *np.shape(sequences[0])[1:]), "int32")
    for row, ids in zip(rows, sequences, strict=True):
        row[: len(ids)] = ids
    return rows


def in_batches(answer):
    """A function of any number of texts from one of a batch; batches are of similar lengths."""

    def answers_of(texts):
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        answers = [None] * len(texts)
        for start in range(0, len(order), BATCH_SIZE):
            numbers = order[start : start + BATCH_SIZE]
            found = answer([texts[n] for n in numbers])
            for n, each in zip(numbers, found, strict=True):
                answers[n] = each
        return answers

    return answers_of


def tagged(answer, directions, options):
    """The same function for a model that reads the target language from a tag before each text."""
    if options.sentences == "always" or options.placeholders:
        sys.exit("Texts with tags are translated whole: leave out --sentences and --placeholders.")
    tags = tuple(sorted({f"<2{direction.split('-')[1]}>" for direction in directions}))

    def answers_of(texts):
        for number, text in enumerate(texts, start=1):
            if text.strip() and not text.startswith(tags):
                sys.exit(
                    f"Line {number} must begin with {' or '.join(tags)}; received {text!r:.60}."
                )
        return answer(texts)

    return answers_of


def in_sentences(answer, num_tokens, settings, options):
    """A function that translates texts as this package does: by sentences, with placeholders."""
    answer = in_batches(answer)
    trained, kinds = settings.get("trained_length"), options.placeholders
    kinds = settings.get("placeholders", ()) if kinds is None else kinds
    splits = options.sentences == "always" or (options.sentences == "auto" and trained)
    if directions := settings.get("directions"):
        return tagged(answer, directions, options)
    if not (splits or kinds):
        return answer
    try:
        from keras_transformer.data.placeholders import placeholder_pattern
        from keras_transformer.tasks.paragraphs import Reading, translate_paragraphs
    except ImportError as error:
        sys.exit(
            f"Sentences and placeholders need this package, without Keras ({error}); install it, "
            "or give --sentences never --placeholders."
        )
    Hypothesis = collections.namedtuple("Hypothesis", "text score finished")
    reading = Reading(
        num_tokens,
        settings.get("longest_input", np.inf),
        options.sentences,
        trained,
        placeholder_pattern(kinds),
        bool(settings.get("placeholders")),
    )

    def translate(texts, places):
        return [[Hypothesis(text, None, True)] for text in answer(texts)]

    def answer_paragraphs(texts):
        empty = [Hypothesis("", None, True)]
        return [each.text for (each,) in translate_paragraphs(texts, translate, empty, reading)]

    return answer_paragraphs


def among(name, names):
    """The name of a graph, if it is one of those that were exported."""
    if name not in names:
        sys.exit(f"The model has no graph {name}, but {', '.join(sorted(names))}: see --beams.")
    return name


def saved_model(folder, options):
    """TensorFlow: text in, text out."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    import tensorflow_text  # noqa: F401  (its operations are in the graph)

    loaded = tf.saved_model.load(str(folder))
    names = set(loaded.signatures) - {"serving_default"}
    if "translate" in names:
        name = "translate" if options.beams == 1 else f"translate_beam{options.beams}"
    else:
        (name,) = names
    signature = loaded.signatures[among(name, names)]

    def answer(texts):
        texts = tf.constant(texts)
        if name == "generate":
            outputs = signature(prompts=texts, max_tokens=tf.constant(options.max_tokens))
        else:
            outputs = signature(texts=texts)
        outputs = {key: value.numpy() for key, value in outputs.items()}
        if name == "tag":
            rows = zip(outputs["words"], outputs["tags"], strict=True)
            return [
                [(word.decode(), tag.decode()) for word, tag in zip(*row, strict=True) if word]
                for row in rows
            ]
        if name == "classify":
            best = outputs["probabilities"].max(axis=-1).tolist()
            return [(label.decode(), p) for label, p in zip(outputs["labels"], best, strict=True)]
        if name == "fill":
            rows = zip(outputs["words"], outputs["probabilities"].tolist(), strict=True)
            return [[(word.decode(), p) for word, p in zip(*row, strict=True)] for row in rows]
        (strings,) = outputs.values()
        return [string.decode() for string in strings]

    def num_tokens(texts):
        found = loaded.signatures["num_tokens"](texts=tf.constant(texts))
        return found["num_tokens"].numpy().tolist()

    if name.startswith("translate"):
        return in_sentences(answer, num_tokens, settings_of(folder), options)
    return in_batches(answer)


def onnx(folder, options):
    """ONNX Runtime: a function from a graph's name and its inputs to its outputs."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads

    @functools.cache
    def session(name):
        path = str(folder / f"{name}.onnx")
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])

    def run(name, **inputs):
        names = [output.name for output in session(name).get_outputs()]
        return dict(zip(names, session(name).run(None, inputs), strict=True))

    ids = Ids(folder)
    return by_ids(ids, stepwise(run, ids) if options.step else run, options)


def litert(folder, options):
    """LiteRT: the same, by the signature runner of its interpreter.

    Its default on a CPU, XNNPACK, is faster, but LiteRT 2.0 to 2.3 have computed wrong logits with
    it in the first call of a text generator's graph.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    ids = Ids(folder)
    is_generator = ids.settings["task"] == "TextGenerator"
    kernels = (
        OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if is_generator else OpResolverType.AUTO
    )

    @functools.cache
    def runner(name):
        path = str(folder / f"{name}.tflite")
        interpreter = Interpreter(
            model_path=path, num_threads=options.threads, experimental_op_resolver_type=kernels
        )
        return interpreter, interpreter.get_signature_runner("serving_default")

    def run(name, **inputs):
        return runner(name)[1](**inputs)

    return by_ids(ids, run, options)


def limits(settings, lengths):
    """The fewest tokens before the end, and the most, for sources of these lengths."""
    longest = settings["max_length_ratio"] * lengths + 16
    longest = np.minimum(longest, settings.get("longest_input", np.inf)).astype(int)
    shortest = np.maximum(settings["min_length_ratio"] * (lengths - 1), 1)  # not empty
    return np.minimum(shortest, longest - 1).astype(int), longest


def stepwise(run, ids):
    """Greedy decoding: a loop around the graphs of encoder and step."""
    if used := [name for name in OF_LOGITS if name in ids.settings]:
        sys.exit(f"--step has no {', '.join(used)}; leave it out, for the search in the graph.")

    def search(name, source_ids):
        state = run("encoder", source_ids=source_ids)
        for key in [key for key in state if key.startswith("memory")]:
            shape = list(state[key].shape)
            shape[3 if "keys" in key else 2] = 0  # caches are empty at the start
            state[key.replace("memory", "cache")] = np.zeros(shape, "float32")
        rows = len(source_ids)
        lengths = (source_ids != 0).sum(axis=1)
        shortest, longest = limits(ids.settings, lengths)
        longest *= lengths > 1
        last, ended = np.full((rows, 1), ids.special["start"], "int32"), longest == 0
        answers = []
        for position in range(int(longest.max())):
            outputs = run("step", ids=last, position=np.array(position, "int32"), **state)
            logits = outputs.pop("logits")
            state |= {key.removeprefix("longer_"): value for key, value in outputs.items()}
            logits[:, [ids.special["padding"], ids.special["start"]]] = -1e9  # never written
            logits[position < shortest, ids.end] = -1e9
            last = logits.argmax(axis=-1).astype("int32")
            last = np.where(ended, 0, last)[:, None]
            answers.append(last)
            ended = ended | (last[:, 0] == ids.end) | (position + 1 >= longest)
            if ended.all():
                break
        return {"ids": np.concatenate(answers, axis=1) if answers else np.zeros((rows, 0), int)}

    return search


def by_ids(ids, run, options):
    """Texts to answers with an engine that computes ids or probabilities."""
    task = ids.settings["task"]
    if options.step and (task != "Translator" or options.beams > 1):
        sys.exit("--step is for greedy decoding of a Translator; leave it out.")
    if task == "Translator":
        name = "greedy" if options.beams == 1 else f"beam{options.beams}"
        among(name, {path.stem for path in ids.folder.glob("[gb]*.*")})

        def answer(texts):
            source_ids = pad([ids.of_source(text) for text in texts])
            return [ids.text(row, "target") for row in run(name, source_ids=source_ids)["ids"]]

        return in_sentences(answer, ids.num_tokens, ids.settings, options)

    if task == "TextGenerator":

        def answer(texts):
            prompts = pad([ids.of_prompt(text) for text in texts])
            number = np.array(options.max_tokens, "int32")
            rows = run("generate", prompt_ids=prompts, max_tokens=number)["ids"]
            return [ids.continued(text, row) for text, row in zip(texts, rows, strict=True)]

    else:

        def answer(texts):
            sentences = [ids.split(text) for text in texts]
            columns = zip(*map(ids.of_words, sentences), strict=True)
            word_ids, character_ids = map(pad, columns)
            inputs = dict(word_ids=word_ids, character_ids=character_ids)
            p = run("probabilities", **inputs)["probabilities"]
            return labelled(ids, sentences, p)

    return in_batches(answer)


def labelled(ids, sentences, p):
    """The answers of a tagger, a classifier or a mask filler, by its probabilities."""
    labels, task = ids.settings["labels"], ids.settings["task"]
    if task == "Classifier":
        return [(labels[row.argmax()], float(row.max())) for row in p]
    if task == "Tagger":
        best = p.argmax(axis=-1)
        return [
            [(word, labels[n]) for word, n in zip(words, row, strict=False)]
            for words, row in zip(sentences, best, strict=True)
        ]
    answers = []
    for words, row in zip(sentences, p, strict=True):
        if words.count("[MASK]") != 1:
            sys.exit(f"Every text must have one [MASK]; received {' '.join(words)!r}.")
        first = ids.special["first"] - 1  # neither unknown nor masked is an answer
        row = row[words.index("[MASK]"), first:]
        best = np.argsort(-row)[:BEST]
        answers.append([(ids.settings["words"][n], float(row[n])) for n in best])
    return answers


def ctranslate2(folder, options):
    """CTranslate2: tokens in, tokens out; one length limit per batch, so equal lengths."""
    import ctranslate2

    ids = Ids(folder)
    threads = dict(inter_threads=1, intra_threads=options.threads)
    if ids.settings["task"] == "TextGenerator":
        generator = ctranslate2.Generator(str(folder), **threads)
        vocabulary = ids.vocabulary["vocabulary"]
        never = ["<pad>", "<s>", *([] if ids.settings["append_end"] else ["</s>"])]

        def answer(texts):
            answers = []
            for text in texts:
                prompt_ids = ids.of_prompt(text)
                (found,) = generator.generate_batch(
                    [["<s>", *(vocabulary.id_to_piece(i) for i in prompt_ids)]],
                    max_length=options.max_tokens,
                    suppress_sequences=[[token] for token in never],
                    include_prompt_in_result=False,
                )
                answers.append(ids.continued(text, prompt_ids + found.sequences_ids[0]))
            return answers

        return in_batches(answer)
    translator = ctranslate2.Translator(str(folder), **threads)
    target = ids.vocabulary["target"]
    settings = {name: ids.settings[name] for name in OF_LOGITS if name in ids.settings}
    unwanted = [
        target.encode(ids.normalized(each)) if isinstance(each, str) else [each]
        for each in settings.pop("suppress", ())
    ]
    unwanted = [[target.id_to_piece(i) for i in each] for each in unwanted]

    def answer(texts):
        answers, by_length = [""] * len(texts), {}
        for n, text in enumerate(texts):
            by_length.setdefault(len(ids.of_source(text)), []).append(n)
        by_length.pop(0, None)  # blank
        for length, numbers in by_length.items():
            source = [ids.of_source(texts[n])[:-1] for n in numbers]  # it adds the end
            source = [[ids.vocabulary["source"].id_to_piece(i) for i in row] for row in source]
            shortest, longest = limits(ids.settings, np.array(length))
            found = translator.translate_batch(
                source,
                beam_size=options.beams,
                length_penalty=0,  # its penalty is another one
                max_input_length=0,  # else it cuts long sources, without a word
                min_decoding_length=int(shortest),
                max_decoding_length=int(longest),
                suppress_sequences=[["<pad>"], ["<s>"], *unwanted],
                **settings,
            )
            for n, each in zip(numbers, found, strict=True):
                answers[n] = target.decode([target.piece_to_id(x) for x in each.hypotheses[0]])
        return answers

    return in_sentences(answer, ids.num_tokens, ids.settings, options)


def marian(folder, options):
    """Hugging Face's MarianMTModel: text in, text out."""
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    settings = settings_of(folder)
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    search = dict(num_beams=options.beams, do_sample=False)
    search |= dict(length_penalty=0.0) if options.beams > 1 else {}  # its penalty is another one

    def answer(texts):
        texts = [normalized(text, settings) for text in texts]
        answers = [""] * len(texts)
        numbers = [n for n, text in enumerate(texts) if text.strip()]
        if numbers:
            tokens = tokenizer([texts[n] for n in numbers], return_tensors="pt", padding=True)
            found = tokenizer.batch_decode(
                model.generate(**tokens, **search), skip_special_tokens=True
            )
            for n, each in zip(numbers, found, strict=True):
                answers[n] = each
        return answers

    def num_tokens(texts):
        return [len(tokenizer(normalized(text, settings)).input_ids) for text in texts]

    return in_sentences(answer, num_tokens, settings, options)


def engine_of(folder):
    """The function that runs what a folder holds."""
    if (folder / "saved_model.pb").exists():
        return saved_model
    if (folder / "model.bin").exists():
        return ctranslate2
    if (folder / "config.json").exists() and (folder / "source.spm").exists():
        return marian
    if any(folder.glob("*.onnx")):
        return onnx
    if any(folder.glob("*.tflite")):
        return litert
    sys.exit(f"{folder} must be a folder that keras-transformer export wrote for another engine.")


def lines_of(content):
    """The lines of UTF-8: Unix's or Windows's, with or without a byte-order mark."""
    lines = content.decode("utf-8-sig").split("\n")
    return [line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1])]


def one_line(answer):
    """An answer as one line: a line end within it becomes its escape sequence."""
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return LINE_ENDS.sub(lambda end: end[0].encode("unicode_escape").decode(), text)


def main():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="exported model")
    add("--beams", type=int, default=1, metavar="N", help="width of the search (default: 1)")
    add("--max-tokens", type=int, default=20, metavar="N", help="new tokens (default: 20)")
    add("--step", action="store_true", help="search outside the graph (ONNX, greedy)")
    add("--threads", type=int, default=1, metavar="N", help="threads per operation (default: 1)")
    when = "when a translator splits texts into sentences; auto: if longer than its training data"
    add("--sentences", choices=("auto", "always", "never"), default="auto", help=when)
    kept = "what is not translated: url, email, path, code, tag, number or regular expressions"
    add("--placeholders", nargs="*", metavar="KIND", help=f"{kept} (default: as saved)")
    add("--json", metavar="FILE", help="JSON file for answers and texts per second")
    options = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale is
    try:
        texts = lines_of(sys.stdin.buffer.read())
    except UnicodeDecodeError as error:
        sys.exit(f"The standard input must be UTF-8: {error}.")
    folder = pathlib.Path(options.folder)
    if options.json and folder.resolve() in pathlib.Path(options.json).resolve().parents:
        sys.exit(f"--json must not be in the exported model; received {options.json}.")
    if options.json and not pathlib.Path(options.json).resolve().parent.is_dir():
        sys.exit(f"--json must name a file in an existing folder; received {options.json}.")
    answer = engine_of(folder)(folder, options)
    if options.json:  # the first calls prepare; notes are those of all texts, below
        logging.disable()
        answer(texts[: 2 * BATCH_SIZE])
        logging.disable(logging.NOTSET)
    start = time.perf_counter()
    answers = answer(texts)
    seconds = time.perf_counter() - start
    assert "keras" not in sys.modules or "tensorflow_text" in sys.modules  # it imports Keras
    if options.json:
        result = dict(answers=answers, texts_per_second=len(texts) / seconds)
        unfinished = pathlib.Path(f"{options.json}.unfinished")
        unfinished.write_text(json.dumps(result), encoding="utf-8")
        os.replace(unfinished, options.json)
    else:
        for each in answers:
            print(one_line(each))


if __name__ == "__main__":
    main()
