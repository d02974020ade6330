// Texts to ids and back, in the browser: the same ids as SentencePiece, tokenizers and this package.

const SPACE = "▁";
const [UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE] = [2, 3, 4, 5, 6]; // of SentencePiece's pieces
const [PADDING_ID, UNKNOWN_ID, START_ID, END_ID] = [0, 1, 2, 3];
const WHITE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // Unicode's
const BLANK = new RegExp(`^[${WHITE}\\x1c-\\x1f]*$`); // to Python
const utf8 = new TextEncoder();

/** A text in the form of the training data. */
export function normalized(text, { normalization, invisible, lowercase }) {
  const inForm = (text) => (normalization ? text.normalize(normalization) : text);
  if (invisible) text = text.replace(new RegExp(invisible, "gu"), "");
  text = inForm(text);
  return lowercase ? inForm(text.toLowerCase()) : text;
}

export function isBlank(text) {
  return BLANK.test(text);
}

/** The tokenizer of a vocabulary: encode(text), decode(ids), and its tokens by id. */
export function tokenizerOf(vocabulary) {
  const { encode, decode, tokens } = (vocabulary.kind === "byte_level" ? byteLevel : sentencePiece)(vocabulary);
  return {
    encode,
    tokens,
    decode(ids) {
      const end = ids.indexOf(END_ID);
      const read = end < 0 ? ids : ids.slice(0, end);
      return decode(read.filter((id) => id !== PADDING_ID && id !== START_ID));
    },
  };
}

/** Joins neighbors, those of the lowest rank first, until none has a rank below infinity. */
function merged(symbols, rank) {
  const ranks = symbols.slice(1).map((symbol, n) => rank(symbols[n], symbol));
  for (;;) {
    let best = 0;
    for (let n = 1; n < ranks.length; n++) if (ranks[n] < ranks[best]) best = n;
    if (!(ranks[best] < Infinity)) return symbols;
    symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
    ranks.splice(best, 1);
    if (best > 0) ranks[best - 1] = rank(symbols[best - 1], symbols[best]);
    if (best < ranks.length) ranks[best] = rank(symbols[best], symbols[best + 1]);
  }
}

function sentencePiece(vocabulary) {
  const { pieces, scores, types } = vocabulary;
  const ids = new Map(); // of pieces, those that are names of special ids and bytes aside
  pieces.forEach((piece, id) => {
    if (![UNKNOWN, CONTROL, BYTE].includes(types[id])) ids.set(piece, id);
  });
  const typeOf = (piece) => types[ids.get(piece)];
  const own = pieces.filter((_, id) => types[id] === USER_DEFINED).sort((a, b) => b.length - a.length);
  const ownAt = (text) => own.find((piece) => text.startsWith(piece));
  const byteIds = new Map(pieces.map((piece, id) => [types[id] === BYTE ? parseInt(piece.slice(3, 5), 16) : null, id]));
  const normalize = normalizerOf(vocabulary, ownAt);

  function characters(text) {
    const found = [];
    while (text) {
      const first = ownAt(text) ?? String.fromCodePoint(text.codePointAt(0));
      found.push(first);
      text = text.slice(first.length);
    }
    return found;
  }

  const rank = (a, b) => {
    const id = own.includes(a) || own.includes(b) ? undefined : ids.get(a + b);
    return id === undefined ? Infinity : -scores[id];
  };
  const segmentations = {
    char: characters,
    bpe: (text) => merged(characters(text), rank),
    unigram: mostProbable(vocabulary, ids),
  };

  function encode(text) {
    const found = [];
    const surfaces = new Map(); // of runs of unknown characters, by their place
    for (const piece of segmentations[vocabulary.kind](normalize(text))) {
      const id = typeOf(piece) === UNUSED ? UNKNOWN_ID : (ids.get(piece) ?? UNKNOWN_ID);
      const last = found.length - 1;
      if (id !== UNKNOWN_ID) found.push(id);
      else if (vocabulary.byte_fallback) found.push(...Array.from(utf8.encode(piece), (byte) => byteIds.get(byte)));
      else if (surfaces.has(last)) surfaces.set(last, surfaces.get(last) + piece);
      else surfaces.set(found.push(id) - 1, piece);
    }
    // In a vocabulary joined from two, a run may be a piece of the other language.
    for (const [place, surface] of surfaces) if (typeOf(surface) === UNUSED) found[place] = ids.get(surface);
    return found;
  }

  function decode(given) {
    let text = "";
    let bytes = [];
    let begins = vocabulary.add_dummy_prefix || vocabulary.remove_extra_whitespaces;
    for (const id of [...given, null]) {
      if (types[id] === BYTE) {
        bytes.push(parseInt(pieces[id].slice(3, 5), 16));
        continue;
      }
      text += bytesToText(bytes);
      bytes = [];
      if (id === null || types[id] === CONTROL) continue;
      begins &&= !text;
      let piece = types[id] === UNKNOWN ? vocabulary.unk_surface : pieces[id];
      if (begins && types[id] !== UNKNOWN && piece.startsWith(SPACE)) {
        piece = piece.slice(1);
        begins = vocabulary.remove_extra_whitespaces;
      }
      text += types[id] === UNKNOWN ? piece : piece.replaceAll(SPACE, " ");
    }
    return text;
  }

  return { encode, decode, tokens: pieces };
}

/** SentencePiece's form of a text: its map of characters, its marks for spaces. */
function normalizerOf({ charsmap, add_dummy_prefix, remove_extra_whitespaces }, ownAt) {
  const mapped = charsmap ? mapOf(charsmap) : () => null;
  return (given) => {
    const parts = [];
    for (let text = given; text; ) {
      const piece = ownAt(text);
      const [part, length] = piece ? [piece, piece.length] : (mapped(text) ?? [null, 0]);
      const own = String.fromCodePoint(text.codePointAt(0));
      parts.push(part ?? own);
      text = text.slice(length || own.length);
    }
    let found = parts.join("");
    if (!given) return "";
    if (remove_extra_whitespaces) found = found.replace(/ +/g, " ").replace(/^ /, "");
    found = ((add_dummy_prefix ? " " : "") + found).replaceAll(" ", SPACE);
    return remove_extra_whitespaces ? found.replace(/▁+$/, "") : found;
  };
}

/** The longest entry of a compiled map of characters at the start of a text: [replacement, length]. */
function mapOf(charsmap) {
  const data = Uint8Array.from(atob(charsmap), (character) => character.charCodeAt(0));
  const view = new DataView(data.buffer);
  const strings = 4 + view.getUint32(0, true);
  const unit = (n) => view.getUint32(4 + 4 * n, true); // of a double array: offset, leaf, label
  const offset = (value) => (value >>> 10) << ((value & 512) >>> 6);
  return (text) => {
    let [node, length, found] = [offset(unit(0)), 0, null];
    for (const character of text) {
      length += character.length;
      for (const byte of utf8.encode(character)) {
        node ^= byte;
        const value = unit(node);
        if ((value & 0x800000ff) !== byte) return found;
        node ^= offset(value);
        if ((value >>> 8) & 1) {
          const start = strings + (unit(node) & 0x7fffffff);
          found = [new TextDecoder().decode(data.subarray(start, data.indexOf(0, start))), length];
        }
      }
    }
    return found;
  };
}

/** The segmentation of a text with the largest sum of scores, summed as float32. */
function mostProbable({ pieces, scores, types }, ids) {
  const longest = Math.max(...pieces.map((piece) => [...piece].length));
  const ofNormal = scores.filter((_, id) => types[id] === 1);
  const unknown = Math.fround(Math.min(...ofNormal) - 10);
  const largest = Math.max(2 ** -126, ...ofNormal);
  return (text) => {
    const characters = [...text];
    const best = [{ score: 0 }]; // by the character before which a segmentation ends
    const offer = (start, end, score) => {
      const sum = Math.fround(score + best[start].score);
      if (!best[end] || sum > best[end].score) best[end] = { start, score: sum };
    };
    for (let start = 0; start < characters.length; start++) {
      let piece = "";
      let known = false;
      for (let end = start + 1; end <= Math.min(start + longest, characters.length); end++) {
        piece += characters[end - 1];
        const id = ids.get(piece);
        if (id === undefined || types[id] === UNUSED) continue;
        known ||= end === start + 1;
        offer(start, end, types[id] === USER_DEFINED ? Math.fround(utf8.encode(piece).length * largest - 0.1) : Math.fround(scores[id]));
      }
      if (!known) offer(start, start + 1, unknown);
    }
    const found = [];
    for (let end = characters.length; end > 0; end = best[end].start)
      found.unshift(characters.slice(best[end].start, end).join(""));
    return found;
  };
}

/** UTF-8 to text; as in SentencePiece, each byte that is not part of a character becomes U+FFFD. */
function bytesToText(bytes) {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let n = 0; n < bytes.length; ) {
    const size = [0xf0, 0xe0, 0xc0].findIndex((first) => bytes[n] >= first);
    const end = n + (size < 0 ? 1 : 4 - size);
    try {
      text += strict.decode(Uint8Array.from(bytes.slice(n, end)));
      n = end;
    } catch {
      text += "\ufffd";
      n++;
    }
  }
  return text;
}

const WORDS_OF_GPT2 = new RegExp(
  `'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^${WHITE}\\p{L}\\p{N}]+|[${WHITE}]+(?![^${WHITE}])|[${WHITE}]+`, "gu");

function byteLevel({ tokens, merges }) {
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const ranks = new Map(merges.map((pair, rank) => [pair.join(" "), rank]));
  const rank = (a, b) => ranks.get(`${a} ${b}`) ?? Infinity;
  // A character stands for each byte: itself if it can be seen, else one from U+0100 on.
  const seen = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let next = 256;
  const characters = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(seen(byte) ? byte : next++));
  const bytes = new Map(characters.map((character, byte) => [character, byte]));

  function encode(text) {
    const words = text.match(WORDS_OF_GPT2) ?? [];
    const symbols = words.flatMap((word) => merged(Array.from(utf8.encode(word), (byte) => characters[byte]), rank));
    return symbols.map((symbol) => ids.get(symbol));
  }

  function decode(given) {
    const found = given.flatMap((id) =>
      id === UNKNOWN_ID ? [...utf8.encode(tokens[id])] : [...tokens[id]].map((character) => bytes.get(character)));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(found));
  }

  return { encode, decode, tokens };
}

/** Words of a text, their ids and those of their characters. */
export function wordVocabulary(settings) {
  const { special_ids: special, max_characters: most, task } = settings;
  const numbered = (strings) => new Map(strings.map((string, n) => [string, n + special.first]));
  const words = numbered(settings.words);
  const characters = numbered(settings.characters);
  const masks = task === "MaskFiller" ? "\\[MASK\\]|" : "";
  // Python escapes some characters that JavaScript does not let one escape.
  const pattern = new RegExp(masks + settings.word_pattern.replace(/\\([&~#\s])/g, "$1"), "gu");

  function spelling(word) {
    const all = [...word];
    const half = Math.floor(most / 2);
    const kept = all.length > most ? [...all.slice(0, half), ...all.slice(half - most)] : all;
    return kept.map((character) => characters.get(character) ?? special.unknown);
  }

  return {
    split: (text) => normalized(text, settings).match(pattern) ?? [],
    encode(found) {
      const isMask = (word) => masks && word === "[MASK]";
      const idOf = (word) => (isMask(word) ? special.masked : (words.get(word.toLowerCase()) ?? special.unknown));
      const rows = found.map((word) => {
        const ids = isMask(word) ? [special.masked] : spelling(word);
        return [...ids, ...Array(most - ids.length).fill(special.padding)];
      });
      return { word_ids: found.map(idOf), character_ids: rows.flat() };
    },
  };
}
