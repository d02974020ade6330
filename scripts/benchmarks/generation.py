"""Sentences a second of decoding, beside CTranslate2 and KerasHub's samplers."""

import functools
import os
import sys
import time

import keras
import numpy as np
from keras import ops

from keras_transformer.generation.steps import compiled, recorded
from keras_transformer.tokenizers import END, PADDING, START, UNKNOWN

from .measuring import SIZES, id_inputs, ours, race, report, stack_of

GENERATE_HELP = """\
Sentences a second of decoding, every sentence to the full length, on random weights.

Each round times one batch of each contender in turn; the table gives the median over the rounds.
All read the same ids and write exactly --length tokens. Contenders:

  ours                Decoding.greedy, or beam_search, compiled, with caches
  ctranslate2         CTranslate2 on the same weights, float32, as many threads as cores
  ctranslate2-1-thread  the same with one thread, which is faster on some machines
  keras-hub           KerasHub's layers and sampler with caches, compiled as its generate() does
  keras-hub-uncached  the same layers and sampler, all tokens run anew for each; greedy only
  ours-source         a part of ours: the encoder, and keys and values of its output
  ours-layers         that, and the steps of the decoder without its logits
  ours-logits         that with the logits; what is left to "ours" is choosing tokens

`first` is the first call, compilation included; `memory` is how much the process's peak grew while
a contender was prepared and timed. `ratio` is sentences a second / CTranslate2's: above 1 is
faster.
"""


def ours_decoding(args, transformer):
    from keras_transformer.generation import Decoding

    decoding = Decoding(transformer)

    def decode(source_ids, beams):
        if beams == 1:
            return decoding.greedy(source_ids, args.length, min_length=args.length)
        found = decoding.beam_search(source_ids, args.length, beams, min_length=args.length)
        return found.ids[:, 0]

    return decode


def part_of_decoding(args, transformer, part):
    """Ours without choosing tokens: what the products alone cost."""

    def source(source_ids, beams):
        return transformer.decoding_context(source_ids, args.length)

    def layers(ids, position, past, context, attention_mask):
        _, projected, mask = context
        x = transformer.embed_target(ids)
        return transformer.decoder.step(x, position, past, attention_mask, projected, mask)

    step = recorded(layers if part == "layers" else transformer.step)

    def steps(source_ids, beams):
        context = source(source_ids, beams)
        batch, places = source_ids.shape[0], args.length * beams
        past = transformer.empty_past(batch, places)
        ids = ops.full((batch, beams), START, "int32")
        attention_mask = ops.ones((1, beams, places), "bool")

        def advance(position, past, total):
            x, past = step(ids, position, past, context, attention_mask)
            return position + 1, past, total + ops.max(x)

        start = ops.convert_to_tensor(0, "int32"), past, ops.convert_to_tensor(0.0)
        return ops.while_loop(lambda position, *_: position < args.length, advance, start)[2]

    program = compiled(source if part == "source" else steps, transformer, "beams")

    def run(source_ids, beams):
        done = program(ops.convert_to_tensor(source_ids), beams=beams)
        return ops.convert_to_numpy(keras.tree.flatten(done)[-1])

    return run


def ctranslate2_decoding(args, transformer, threads=None):
    import tempfile

    import ctranslate2

    from keras_transformer.export import ctranslate2_spec

    tokens = [str(i) for i in range(args.vocabulary_size)]
    with tempfile.TemporaryDirectory() as folder:
        ctranslate2_spec(transformer, tokens, tokens).save(folder)
        threads = threads or len(os.sched_getaffinity(0))
        options = dict(compute_type="float32", inter_threads=1, intra_threads=threads)
        engine = ctranslate2.Translator(folder, **options)

    def decode(source_ids, beams):
        source = [[tokens[i] for i in row[:-1]] for row in source_ids]  # END is added there
        lengths = dict(min_decoding_length=args.length, max_decoding_length=args.length)
        found = engine.translate_batch(source, beam_size=beams, length_penalty=0, **lengths)
        return [each.hypotheses[0] for each in found]

    return decode


def keras_hub_decoding(args, transformer, cached=True):
    """KerasHub's layers in its samplers, as its Seq2SeqLM tasks call them."""
    import keras_hub

    embedding = keras_hub.layers.ReversibleEmbedding(args.vocabulary_size, args.d_model)
    positions = keras_hub.layers.SinePositionEncoding()
    block = dict(intermediate_dim=args.d_ff, num_heads=args.num_heads)
    encoders = [keras_hub.layers.TransformerEncoder(**block) for _ in range(args.num_layers)]
    decoders = [keras_hub.layers.TransformerDecoder(**block) for _ in range(args.num_layers)]

    def embed(ids, start_index=0):
        x = embedding(ids)
        return x + positions(x, start_index=start_index)

    def encode(source_ids):
        x, mask = embed(source_ids), ops.not_equal(source_ids, PADDING)
        for encoder in encoders:
            x = encoder(x, padding_mask=mask)
        return x, mask

    inputs = id_inputs()
    memory, mask = encode(inputs["source_ids"])
    y = embed(inputs["target_ids"])
    for decoder in decoders:
        y = decoder(y, memory, encoder_padding_mask=mask)
    model = keras.Model(inputs, embedding(y, reverse=True))

    def caches(number, length):
        heads = args.num_heads, args.d_model // args.num_heads
        return ops.zeros((number, args.num_layers, 2, length, *heads))

    def generated(source_ids, beams):
        memory, mask = encode(source_ids)
        prompt = ops.pad(ops.full_like(source_ids[:, :1], START), ((0, 0), (0, args.length)))
        number = source_ids.shape[0]
        past = caches(number, args.length + 1)

        def of_each_beam(x, ids):
            return ops.repeat(x, ids.shape[0] // number, axis=0)

        def next_cached(prompt, cache, index):
            ids = ops.slice(prompt, (0, index - 1), (prompt.shape[0], 1))
            y, presents = embed(ids, index - 1), []
            for layer, decoder in enumerate(decoders):
                y, present, _ = decoder(
                    y,
                    of_each_beam(memory, ids),
                    encoder_padding_mask=of_each_beam(mask, ids),
                    self_attention_cache=cache[:, layer],
                    self_attention_cache_update_index=index - 1,
                    cross_attention_cache=of_each_beam(of_memory[:, layer], ids),
                )
                presents.append(present)
            logits = embedding(y, reverse=True)[:, 0]
            return logits, y[:, 0], ops.stack(presents, axis=1)

        def next_uncached(prompt, cache, index):
            y = embed(prompt)
            for decoder in decoders:
                y = decoder(y, memory, encoder_padding_mask=mask)
            y = ops.slice(y, (0, index - 1, 0), (number, 1, args.d_model))
            return embedding(y, reverse=True)[:, 0], y[:, 0], cache

        if cached:  # a first call, at position 0, fills the cache of the memory
            of_memory, y = caches(number, source_ids.shape[1]), embed(prompt[:, :1])
            filled = []
            for layer, decoder in enumerate(decoders):
                y, _, cross = decoder(
                    y,
                    memory,
                    encoder_padding_mask=mask,
                    self_attention_cache=past[:, layer],
                    self_attention_cache_update_index=0,
                    cross_attention_cache=of_memory[:, layer],
                    cross_attention_cache_update_index=0,
                )
                filled.append(cross)
            of_memory = ops.stack(filled, axis=1)
        names = keras_hub.samplers
        sampler = names.GreedySampler() if beams == 1 else names.BeamSampler(num_beams=beams)
        next_token = next_cached if cached else next_uncached
        return sampler(next_token, prompt, cache=past if cached else (), index=1, model=model)

    program = compiled(generated, model, "beams")

    def decode(source_ids, beams):
        ids = program(ops.convert_to_tensor(source_ids), beams=beams)
        return ops.convert_to_numpy(ids)[:, 1:]

    return decode


PARTS = {
    f"ours-{part}": functools.partial(part_of_decoding, part=part)
    for part in ("source", "layers", "logits")
}
DECODERS = {
    "ours": ours_decoding,
    "ctranslate2": ctranslate2_decoding,
    "ctranslate2-1-thread": functools.partial(ctranslate2_decoding, threads=1),
    "keras-hub": keras_hub_decoding,
    "keras-hub-uncached": functools.partial(keras_hub_decoding, cached=False),
    **PARTS,
}


def generate(args):
    import resource

    keras.utils.set_random_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    transformer = ours(args)
    rows, steps = {}, []
    for name in args.contenders:
        decode = DECODERS[name](args, transformer)
        for batch_size, beams in args.batches:
            if name == "keras-hub-uncached" and beams > 1:
                continue
            shape = batch_size, args.length
            source_ids = rng.integers(UNKNOWN + 3, args.vocabulary_size, shape).astype("int32")
            source_ids[:, -1] = END
            print(f"preparing {name}, batch {batch_size}, beams {beams}", file=sys.stderr)
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
            decode(source_ids, beams)
            first = time.perf_counter() - start
            for _ in range(args.warmup):
                decode(source_ids, beams)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            rows[name, batch_size, beams] = dict(first=first, memory_mb=grown / 1024)
            step = functools.partial(decode, source_ids, beams)
            steps.append(((name, batch_size, beams), step))
    seconds = race([step for _, step in steps], args.rounds)
    for (key, _), column in zip(steps, seconds.T):
        low, median, high = (key[1] / np.quantile(column, (0.75, 0.5, 0.25))).tolist()
        rows[key] |= dict(sentences_per_second=median, low=low, high=high)
    print(f"Decoding, {stack_of(args)}, {args.length} tokens a side, float32\n")
    print("| who | batch | beams | sentences a second (quartiles) | ratio | first | memory |")
    print("|---|---|---|---|---|---|---|")
    for (name, batch_size, beams), row in rows.items():
        peer = rows.get(("ctranslate2", batch_size, beams))
        row |= dict(name=name, batch_size=batch_size, beams=beams)
        row["ratio"] = peer and row["sentences_per_second"] / peer["sentences_per_second"]
        speed = "{sentences_per_second:,.0f} ({low:,.0f} to {high:,.0f})".format(**row)
        ratio = f"{row['ratio']:.2f}" if peer else ""
        costs = f"{row['first']:.1f} s | {row['memory_mb']:,.0f} MB"
        print(f"| {name} | {batch_size} | {beams} | {speed} | {ratio} | {costs} |")
    report(args, list(rows.values()))


def batch_and_beams(text):
    batch_size, beams = map(int, text.split("x"))
    return batch_size, beams


# The shapes of a small model that many measure decoding with; --batches is (sentences, beams).
GENERATE_SIZES = dict(num_layers=4, d_model=128, num_heads=4, d_ff=256, vocabulary_size=8000)


def add_command(commands, formatter):
    one_line = "sentences a second of greedy decoding and beam search"
    command = commands.add_parser("generate", help=one_line, description=GENERATE_HELP, **formatter)
    add = command.add_argument
    default = [name for name in DECODERS if name not in PARTS]
    add("--contenders", nargs="+", choices=DECODERS, default=default, help="default: all but parts")
    for name, default in GENERATE_SIZES.items():
        text = f"{SIZES[name][1].split(';')[0]}; default: {default}"
        add(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N", help=text)
    add("--length", type=int, default=20, metavar="N", help="tokens a side; default: 20")
    add("--rounds", type=int, default=15, metavar="N", help="timed batches of each; default: 15")
    add("--warmup", type=int, default=2, metavar="N", help="untimed ones before; default: 2")
    add("--seed", type=int, default=0, metavar="N", help="of weights and ids; default: 0")
    text = "sentences x beams; default: 64x1 64x4 1x4"
    default = [(64, 1), (64, 4), (1, 4)]
    add("--batches", nargs="+", type=batch_and_beams, default=default, metavar="NxK", help=text)
    add("--json", metavar="FILE", help="write the rows and their circumstances here too")
    command.set_defaults(run=generate, dropout=0.0)
