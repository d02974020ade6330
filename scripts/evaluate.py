"""Score a saved model on a test set: BLEU, chrF, perplexity, speed, and where it is worst.

    python scripts/evaluate.py runs/en-de/model.keras --source test.en --reference test.de
    python scripts/evaluate.py runs/en-de/model.keras --source test.en.gz --reference test.de.gz \
        --beams 5 --json scores.json --translations test.out --worst 10

BLEU and chrF are sacreBLEU's, on plain text, and stand beside the signature that makes them
comparable; --tokenize zh for Chinese. Papers that report "tokenised, lower-cased BLEU" score text
that was tokenised and lower-cased beforehand: train on such text, give such files, and take
--tokenize none. Perplexity is exp(nats / tokens) of the references, each END counted.
KERAS_BACKEND=tensorflow, jax or torch chooses the backend, whichever one trained the model.
"""

import argparse
import json
import math
import sys
import time

from line_by_line import load


def main():
    args = parse_arguments()
    translator = load(args.model, "Translator")

    from keras_transformer import corpora, evaluation, tokenizers
    from keras_transformer.writing import write_text

    try:
        source, reference = corpora.read_files(args.source, args.reference)
        start = time.perf_counter()
        said = translator.translate(source, beams=args.beams, length_penalty=args.length_penalty)
        seconds = time.perf_counter() - start
        bleu = evaluation.bleu(said, reference, args.tokenize, args.lowercase)
        chrf = evaluation.chrf(said, reference, args.lowercase)
        log_p = sum(translator.score(source, reference, length_penalty=0.0))
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"{error}")
    tokens = sum(len(ids) + 1 for ids in tokenizers.encode(translator.target_tokenizer, reference))
    scores = {
        "bleu": bleu.value,
        "bleu_signature": bleu.signature,
        "chrf": chrf.value,
        "chrf_signature": chrf.signature,
        "perplexity": math.exp(-log_p / tokens),
        "sentences": len(source),
        "seconds": seconds,
        "sentences_per_second": len(source) / seconds,
    }
    print(f"BLEU {bleu}\nchrF {chrf}")
    print(f"Perplexity of the references: {scores['perplexity']:.3f} a token")
    print(f"{len(source)} sentences in {seconds:.1f} s, first calls and their compilation included")
    each = evaluation.sentence_chrf(said, reference, args.lowercase)
    for number in sorted(range(len(each)), key=each.__getitem__)[: args.worst]:
        print(f"\nSentence {number + 1}, chrF {each[number]:.1f}")
        for name, text in (("source", source), ("reference", reference), ("said", said)):
            print(f"  {name:9} {text[number]}")
    if args.translations:
        write_text(args.translations, "".join(f"{text}\n" for text in said))
    if args.json:
        write_text(args.json, json.dumps(scores, indent=2, ensure_ascii=False) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a .keras file from train_translation.py")
    add("--source", required=True, metavar="FILE", help="sentences, one a line, plain or .gz")
    add("--reference", required=True, metavar="FILE", help="their translations, line by line")
    add("--beams", type=int, metavar="K", help="width of the beam search; 1: greedy (as saved)")
    add("--length-penalty", type=float, metavar="A", help="alpha of GNMT's penalty (as saved)")
    add("--tokenize", default="13a", metavar="T", help="sacreBLEU's: 13a (default), zh, none, ...")
    add("--lowercase", action="store_true", help="ignore upper and lower case")
    add("--worst", type=int, default=5, metavar="N", help="show so many with the lowest chrF (5)")
    add("--json", metavar="FILE", help="write the scores here too")
    add("--translations", metavar="FILE", help="write the translations here, line by line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
