"""Sentences per second of decoding, compared with CTranslate2 and KerasHub's samplers."""

import functools
import sys
import tempfile
import time

import keras
import numpy as np
from keras import ops

import keras_transformer as kt
from keras_transformer import backend
from keras_transformer.backend import num_cores

from .measuring import (
    OF_OURS_ALONE,
    add_keep_memory,
    add_separate,
    add_sizes,
    check_quiet,
    id_inputs,
    measure_separately,
    peak_memory,
    race,
    report,
    sizes_given,
    stack_of,
)

GENERATE_HELP = """\
Sentences per second of decoding, every sentence to the full length, on random weights.

Each round times one batch of each contender in turn; the table shows the median over the rounds.
All read the same ids and write exactly --length tokens. Contenders:

  ours                Decoding.greedy, or beam_search, compiled, with caches
  ours-2-batches      the same with two halves of a batch at once, as `translate` does with two
                      batches (on PyTorch one after the other)
  ctranslate2         CTranslate2 on the same weights, float32, one thread per core
  ctranslate2-1-thread  the same with one thread, which is faster on some machines
  ctranslate2-2-batches  the same with two halves of a batch at once, one thread each
  keras-hub           KerasHub's layers and sampler with caches, compiled as in its generate()
  keras-hub-uncached  the same, every step computing all tokens again; greedy only
  ours-source         a part of ours: the encoder, and keys and values of its output
  ours-layers         that, and the steps of the decoder without its logits
  ours-logits         that with the logits; the rest of "ours" is the choice of tokens

In one process the idle threads of one engine can slow another one. --separate N gives each
contender N processes of its own, one at a time and in turn, each with all --rounds.

`first` is the first call, compilation included; `memory` is the growth of the process's peak while
a contender was prepared and timed. `ratio` is sentences per second / CTranslate2's: above 1 is
faster.
"""

# A size that many use to measure decoding.
CONFIG = kt.TransformerConfig(num_layers=4, d_model=128, num_heads=4, d_ff=256, dropout=0.0)


def ours_decoding(transformer, length):
    decoding = kt.Decoding(transformer)

    def decode(source_ids, beams):
        if beams == 1:
            return decoding.greedy(source_ids, length, min_length=length)
        found = decoding.beam_search(source_ids, length, beams=beams, min_length=length)
        return found.ids[:, 0]

    return decode


def ours_by_halves(transformer, length):
    decode = ours_decoding(transformer, length)

    def by_halves(source_ids, beams):
        halves = np.array_split(source_ids, min(2, len(source_ids)))
        return np.concatenate([*backend.map_batches(lambda half: decode(half, beams), halves)])

    return by_halves


def compiled(function, model):
    """`function` of source ids and beams as one program per batch size.

    TensorFlow would make one of all sizes, in which none is known.
    """
    programs = backend.Programs(model)

    def call(source_ids, beams):
        program = programs.get(len(source_ids), lambda: backend.jit(function, programs, "beams"))
        return program(ops.convert_to_tensor(source_ids), beams=beams)

    return call


def part_of_decoding(transformer, length, part):
    """Ours without the choice of tokens: the cost of its products alone."""

    def layers(ids, memory, attention_mask, cache):
        y = transformer.target_embedding(ids)
        y = transformer.target_positions(y, positions=cache.positions)
        return transformer.decoder(
            y,
            memory.states,
            cross_attention_mask=memory.mask,
            attention_mask=attention_mask,
            cache=cache,
        )

    decode = layers if part == "layers" else transformer.decode

    @backend.trace
    def source(source_ids):
        memory = transformer.encode(source_ids)
        return memory, transformer.cache_memory(memory)

    @backend.trace
    def step(ids, position, decoded, memory, of_memory, attention_mask):
        beams = ids.shape[1]
        positions = ops.broadcast_to(position, (beams,))
        cache = kt.Cache(decoded, of_memory, position * beams, positions)
        x = decode(ids, memory, attention_mask=attention_mask, cache=cache)
        return x, cache.decoded

    def steps(source_ids, beams):
        memory, of_memory = source(source_ids)
        batch_size, slots = source_ids.shape[0], length * beams
        ids = ops.full((batch_size, beams), kt.START, "int32")
        attention_mask = ops.ones((1, beams, slots), "bool")

        def advance(position, decoded, total):
            x, decoded = step(ids, position, decoded, memory, of_memory, attention_mask)
            return position + 1, decoded, total + ops.max(x)

        start = (
            ops.convert_to_tensor(0, "int32"),
            transformer.empty_cache(batch_size, slots),
            ops.convert_to_tensor(0.0),
        )
        return ops.while_loop(lambda position, *_: position < length, advance, start)[2]

    def source_alone(source_ids, beams):
        return source(source_ids)

    program = compiled(source_alone if part == "source" else steps, transformer)

    def run(source_ids, beams):
        return ops.convert_to_numpy(keras.tree.flatten(program(source_ids, beams))[-1])

    return run


def ctranslate2_decoding(transformer, length, threads=None, batches=1):
    import ctranslate2

    from keras_transformer.interchange.ctranslate2 import ctranslate2_spec

    tokens = [str(i) for i in range(transformer.target_vocabulary_size)]
    with tempfile.TemporaryDirectory() as folder:
        ctranslate2_spec(transformer, tokens, tokens).save(folder)
        engine = ctranslate2.Translator(
            folder,
            compute_type="float32",
            inter_threads=batches,
            intra_threads=threads or num_cores(),
        )

    def decode(source_ids, beams):
        source = [[tokens[i] for i in row[:-1]] for row in source_ids]  # it adds END
        found = engine.translate_batch(
            source,
            beam_size=beams,
            length_penalty=0,
            min_decoding_length=length,
            max_decoding_length=length,
            max_batch_size=-(-len(source) // batches),
        )
        return [each.hypotheses[0] for each in found]

    return decode


def keras_hub_decoding(transformer, length, cached=True):
    """KerasHub's layers in its samplers, as its Seq2SeqLM tasks call them."""
    import keras_hub

    config = transformer.config
    embedding = keras_hub.layers.ReversibleEmbedding(
        transformer.target_vocabulary_size, config.d_model
    )
    positions = keras_hub.layers.SinePositionEncoding()
    block = {"intermediate_dim": config.d_ff, "num_heads": config.num_heads}
    encoders = [keras_hub.layers.TransformerEncoder(**block) for _ in range(config.num_layers)]
    decoders = [keras_hub.layers.TransformerDecoder(**block) for _ in range(config.num_layers)]

    def embed(ids, start_index=0):
        x = embedding(ids)
        return x + positions(x, start_index=start_index)

    def encode(source_ids):
        x, mask = embed(source_ids), ops.not_equal(source_ids, kt.PADDING)
        for encoder in encoders:
            x = encoder(x, padding_mask=mask)
        return x, mask

    inputs = id_inputs()
    memory, mask = encode(inputs["source_ids"])
    y = embed(inputs["target_ids"])
    for decoder in decoders:
        y = decoder(y, memory, encoder_padding_mask=mask)
    model = keras.Model(inputs, embedding(y, reverse=True))

    def caches(batch_size, length):
        heads = config.num_heads, config.d_model // config.num_heads
        return ops.zeros((batch_size, config.num_layers, 2, length, *heads))

    def memory_caches(memory, mask, prompt, past):
        """The caches of the cross-attentions, which a first call at position 0 fills."""
        batch_size, source_length, _ = memory.shape
        empty, y = caches(batch_size, source_length), embed(prompt[:, :1])
        filled = []
        for layer, decoder in enumerate(decoders):
            y, _, cross = decoder(
                y,
                memory,
                encoder_padding_mask=mask,
                self_attention_cache=past[:, layer],
                self_attention_cache_update_index=0,
                cross_attention_cache=empty[:, layer],
                cross_attention_cache_update_index=0,
            )
            filled.append(cross)
        return ops.stack(filled, axis=1)

    def generated(source_ids, beams):
        memory, mask = encode(source_ids)
        batch_size = source_ids.shape[0]
        start = ops.full_like(source_ids[:, :1], kt.START)
        prompt = ops.pad(start, ((0, 0), (0, length)))
        past = caches(batch_size, length + 1)
        of_memory = memory_caches(memory, mask, prompt, past) if cached else None

        def per_beam(x, ids):
            return ops.repeat(x, ids.shape[0] // batch_size, axis=0)

        def next_cached(prompt, cache, index):
            ids = ops.slice(prompt, (0, index - 1), (prompt.shape[0], 1))
            y, presents = embed(ids, index - 1), []
            for layer, decoder in enumerate(decoders):
                y, present, _ = decoder(
                    y,
                    per_beam(memory, ids),
                    encoder_padding_mask=per_beam(mask, ids),
                    self_attention_cache=cache[:, layer],
                    self_attention_cache_update_index=index - 1,
                    cross_attention_cache=per_beam(of_memory[:, layer], ids),
                )
                presents.append(present)
            logits = embedding(y, reverse=True)[:, 0]
            return logits, y[:, 0], ops.stack(presents, axis=1)

        def next_uncached(prompt, cache, index):
            y = embed(prompt)
            for decoder in decoders:
                y = decoder(y, memory, encoder_padding_mask=mask)
            y = ops.slice(y, (0, index - 1, 0), (batch_size, 1, config.d_model))
            return embedding(y, reverse=True)[:, 0], y[:, 0], cache

        samplers = keras_hub.samplers
        sampler = samplers.GreedySampler() if beams == 1 else samplers.BeamSampler(num_beams=beams)
        next_token = next_cached if cached else next_uncached
        return sampler(
            next_token,
            prompt,
            cache=past if cached else (),
            index=1,
            stop_token_ids=[transformer.target_vocabulary_size],  # looked for, and never written
            model=model,
        )

    program = compiled(generated, model)

    def decode(source_ids, beams):
        return ops.convert_to_numpy(program(source_ids, beams))[:, 1:]

    return decode


PARTS = {
    f"ours-{part}": functools.partial(part_of_decoding, part=part)
    for part in ("source", "layers", "logits")
}
DECODERS = {
    "ours": ours_decoding,
    "ours-2-batches": ours_by_halves,
    "ctranslate2": ctranslate2_decoding,
    "ctranslate2-1-thread": functools.partial(ctranslate2_decoding, threads=1),
    "ctranslate2-2-batches": functools.partial(ctranslate2_decoding, threads=1, batches=2),
    "keras-hub": keras_hub_decoding,
    "keras-hub-uncached": functools.partial(keras_hub_decoding, cached=False),
    **PARTS,
}


def config_of(args):
    return CONFIG.replace(**sizes_given(args))


def measure(args, contenders):
    """The contenders in this process: {(name, batch size, beams): seconds, first, memory}."""
    if args.keep_memory:
        backend.keep_freed_memory()
    keras.utils.set_random_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    transformer = kt.Transformer(args.vocabulary_size, config=config_of(args))
    sources = {shape: source_batch(rng, args, shape[0]) for shape in args.batches}
    results, steps = {}, []
    for name in contenders:
        decode = DECODERS[name](transformer, args.length)
        for batch_size, beams in args.batches:
            if name == "keras-hub-uncached" and beams > 1:
                continue
            print(f"preparing {name}, batch {batch_size}, beams {beams}", file=sys.stderr)
            step = functools.partial(decode, sources[batch_size, beams], beams)
            results[name, batch_size, beams] = prepare(step, args.warmup)
            steps.append(step)
    seconds = race(steps, args.rounds)
    for result, column in zip(results.values(), seconds.T, strict=True):
        result["seconds"] = column.tolist()
    return results


def source_batch(rng, args, batch_size):
    shape = batch_size, args.length
    source_ids = rng.integers(kt.UNKNOWN + 3, args.vocabulary_size, shape).astype("int32")
    source_ids[:, -1] = kt.END
    return source_ids


def prepare(step, warmup):
    """The cost of the first call, compilation included."""
    before, start = peak_memory(), time.perf_counter()
    step()
    first = time.perf_counter() - start
    for _ in range(warmup):
        step()
    return {"first": first, "memory_mb": peak_memory() - before}


def merge(measured):
    """The rows of several processes as one: all seconds, and medians of the rest."""
    merged = {}
    for results in measured:
        for key, result in results.items():
            merged.setdefault(key, []).append(result)
    return {
        key: {
            "first": float(np.median([result["first"] for result in results])),
            "memory_mb": float(np.median([result["memory_mb"] for result in results])),
            "seconds": [second for result in results for second in result["seconds"]],
        }
        for key, results in merged.items()
    }


def generate(args):
    quiet = check_quiet()
    if args.separate:
        rows = merge(measure_separately(measure, args))
    else:
        rows = measure(args, args.contenders)
    for (name, batch_size, beams), row in rows.items():
        quantiles = np.quantile(row["seconds"], (0.75, 0.5, 0.25))
        low, median, high = (batch_size / quantiles).tolist()
        row |= {"name": name, "batch_size": batch_size, "beams": beams}
        row |= {"sentences_per_second": median, "low": low, "high": high}
    print_table(args, rows)
    report(args, list(rows.values()), two_threads_over_one=quiet)


def print_table(args, rows):
    stack = stack_of(config_of(args), args.vocabulary_size)
    print(f"Decoding, {stack}, {args.length} tokens per side, float32\n")
    print(
        "| contender | batch | beams | sentences per second (quartiles) | ratio | first | memory |"
    )
    print("|---|---|---|---|---|---|---|")
    for (name, batch_size, beams), row in rows.items():
        peer = rows.get(("ctranslate2", batch_size, beams))
        row["ratio"] = peer and row["sentences_per_second"] / peer["sentences_per_second"]
        speed = "{sentences_per_second:,.0f} ({low:,.0f} to {high:,.0f})".format(**row)
        ratio = f"{row['ratio']:.2f}" if peer else ""
        costs = f"{row['first']:.1f} s | {row['memory_mb']:,.0f} MB"
        print(f"| {name} | {batch_size} | {beams} | {speed} | {ratio} | {costs} |")


def batch_and_beams(text):
    batch_size, beams = map(int, text.split("x"))
    return batch_size, beams


def add_command(commands, formatter):
    one_line = "sentences per second of greedy decoding and beam search"
    command = commands.add_parser("generate", help=one_line, description=GENERATE_HELP, **formatter)
    add = command.add_argument
    default = [name for name in DECODERS if name not in PARTS]
    contenders = "contenders to measure (default: all but the parts of ours)"
    add("--contenders", nargs="+", choices=DECODERS, default=default, help=contenders)
    add_sizes(add, CONFIG)
    add("--vocabulary-size", type=int, default=8000, metavar="N", help="shared ids (default: 8000)")
    add("--length", type=int, default=20, metavar="N", help="tokens per side (default: 20)")
    batches = "sentences x beams of each batch (default: 64x1 64x4 1x4)"
    default = [(64, 1), (64, 4), (1, 4)]
    add("--batches", nargs="+", type=batch_and_beams, default=default, metavar="NxK", help=batches)
    rounds = "timed batches per contender (default: 15)"
    add("--rounds", type=int, default=15, metavar="N", help=rounds)
    warmup = "untimed batches per contender before (default: 2)"
    add("--warmup", type=int, default=2, metavar="N", help=warmup)
    add_separate(add)
    add_keep_memory(add, OF_OURS_ALONE)
    seed = "random seed of weights and ids (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed)
    add("--json", metavar="FILE", help="JSON file for the rows and their circumstances")
    command.set_defaults(run=generate)
