// What the server's api.js asks a server, answered in this browser by the model in this folder.
import { beamSearch } from "./beams.js";
import { ids, pass, rows, search, settings } from "./model.js";
import { isBlank, normalized, tokenizerOf, wordVocabulary } from "./vocabularies.js";

const [START, END] = [2, 3];
const NEVER_WRITTEN = [0, START];
const MOST_TOKENS = 64; // of a text whose maps are shown: a map has their square
const LABELS = 8;

const { task, longest_input: longestInput } = settings;
const source = settings.source && tokenizerOf(settings.source);
const target = settings.target && tokenizerOf(settings.target);
const words = settings.words && wordVocabulary(settings);
const encoded = (tokenizer, text) => tokenizer.encode(normalized(text, settings));

document.querySelector("footer p").dataset.text = "footerHere";

export function useKey() {}

export async function models() {
  return [settings];
}

/** The answer of a route, such as ask("beams", {text}); `signal` may abort it. */
export async function ask(route, question, signal) {
  await new Promise((resolve) => setTimeout(resolve)); // the page is drawn before its thread computes
  signal?.throwIfAborted();
  const answer = await ROUTES[route](question, signal);
  signal?.throwIfAborted();
  return answer;
}

const ROUTES = { translate, attention, labels, next, generate, beams };

function checkLength(found, limit = Infinity) {
  const most = Math.min(limit, longestInput ?? Infinity);
  if (found.length > most) throw new Error(`at most ${most} tokens are read at once; this text has ${found.length}`);
  return found;
}

const tags = [...new Set((settings.directions ?? []).map((direction) => `<2${direction.split("-")[1]}>`))];

function sourceIds(text, most) {
  if (tags.length && !tags.some((tag) => text.startsWith(tag)))
    throw new Error(`a text begins with the tag of a target language: ${tags.join(", ")}`);
  return checkLength([...encoded(source, text), END], most);
}

async function translate({ texts: [text] }) {
  if (isBlank(normalized(text, settings))) return { answers: [""] };
  const read = sourceIds(text);
  return { answers: [target.decode(await search({ source_ids: ids(read, 1, read.length) }))] };
}

/** The fewest and the most tokens of an answer, END included. */
function limits(length) {
  const most = Math.floor(Math.min(settings.max_length_ratio * length + 16, longestInput));
  return [Math.floor(Math.min(Math.max(settings.min_length_ratio * (length - 1), 1), most - 1)), most];
}

/** The logits of the token after each of several answers to a source. */
async function logitsAfter(read, answers, changes) {
  const [batch, length] = [answers.length, answers[0].length + 1];
  const inputs = {
    source_ids: ids(Array(batch).fill(read), batch, read.length),
    target_ids: ids(answers.map((answer) => [START, ...answer]), batch, length),
  };
  const { logits } = await pass(inputs, changes);
  return rows(logits).filter((_, n) => n % length === length - 1);
}

async function beams({ text, beams, length_penalty: alpha }, signal) {
  if (isBlank(normalized(text, settings))) return { steps: [], answers: [] };
  const read = sourceIds(text, MOST_TOKENS);
  const [fewest, most] = limits(read.length);
  const logits = async (answers) => {
    await new Promise((resolve) => setTimeout(resolve)); // a newer question may abort this one
    signal?.throwIfAborted();
    return logitsAfter(read, answers);
  };
  const { steps, answers } = await beamSearch(logits, beams, alpha, fewest, most);
  const branchOf = ({ ids, parent, score, state }) =>
    ({ token: target.tokens[ids.at(-1)], parent, score, state, text: target.decode(ids) });
  return {
    steps: steps.map((branches) => branches.map(branchOf)),
    answers: answers.map(({ ids, ...answer }) => ({ text: target.decode(ids), ...answer })),
  };
}

/** Greedy decoding, perhaps without some heads or the mask: an answer, and the logits of each token. */
async function greedy(read, changes) {
  const [fewest, most] = limits(read.length);
  const [answer, steps] = [[], []];
  while (answer.length < Math.min(most, MOST_TOKENS) && answer.at(-1) !== END) {
    const [logits] = await logitsAfter(read, [answer], changes);
    for (const id of answer.length < fewest ? [...NEVER_WRITTEN, END] : NEVER_WRITTEN) logits[id] = -Infinity;
    steps.push(logits);
    answer.push(logits.indexOf(Math.max(...logits)));
  }
  return { answer, steps };
}

async function attention({ text, answer = null, off, look_ahead }) {
  const changes = { off, look_ahead };
  let [inputs, tokens, written, read] = [{}, {}, [], []];
  if (task === "Translator") {
    read = sourceIds(text, MOST_TOKENS);
    written = answer === null ? (await greedy(read, changes)).answer : checkLength([...encoded(target, answer), END], MOST_TOKENS);
    const before = [START, ...written.slice(0, -1)];
    answer ??= target.decode(written);
    inputs = { source_ids: ids(read, 1, read.length), target_ids: ids(before, 1, before.length) };
    const [ofTarget, ofBefore] = [written, before].map((found) => found.map((id) => target.tokens[id]));
    tokens = { source: read.map((id) => source.tokens[id]), target: ofTarget, before: ofBefore };
  } else if (task === "TextGenerator") {
    read = prompt(text);
    inputs = { token_ids: ids(read, 1, read.length) };
    tokens = { source: read.map((id) => target.tokens[id]) };
  } else [inputs, tokens.source] = wordInputs(text);
  const found = await pass(inputs, changes);
  const maps = settings.attentions.map((name, n) => {
    const kind = name.endsWith("cross_attention") ? "cross" : name.startsWith("decoder") ? "decoder" : "encoder";
    const weights = found[`weights_${n}`];
    const length = weights.dims.at(-2);
    const all = rows(weights).map((row) => Array.from(row));
    const ofHead = (_, head) => all.slice(head * length, (head + 1) * length);
    const layer = Number(name.match(/block_(\d+)/)[1]);
    return { name, kind, layer, weights: Array.from({ length: settings.heads }, ofHead) };
  });
  return { answer, tokens, maps };
}

function softmax(logits, temperature = 1) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const p = Array.from(logits, (each) => (temperature ? Math.exp((each - most) / temperature) : Number(each === most)));
  const sum = p.reduce((a, b) => a + b);
  return p.map((each) => each / sum);
}

/** The numbers of the largest values, falling. */
function largest(values, most) {
  return [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, most);
}

function wordInputs(text) {
  const found = words.split(text);
  if (!found.length) throw new Error("the text has no word");
  checkLength(found, Math.min(MOST_TOKENS, longestInput));
  const { word_ids, character_ids } = words.encode(found);
  const most = settings.max_characters;
  return [{ word_ids: ids(word_ids, 1, found.length), character_ids: ids(character_ids, 1, found.length, most) }, found];
}

async function labels({ text, off }) {
  const [inputs, found] = wordInputs(text);
  const { logits } = await pass(inputs, { off });
  const ofRow = (word, row, first = 0) => {
    const p = softmax(row.subarray(1)).slice(first); // 0 is padding
    const best = largest(p, LABELS);
    return { word, labels: best.map((n) => ({ label: settings.labels[n + first], probability: p[n] })) };
  };
  const ofWords = rows(logits);
  if (task === "Classifier") return [ofRow(null, ofWords[0])];
  if (task === "Tagger") return found.map((word, n) => ofRow(word, ofWords[n]));
  if (!found.includes("[MASK]")) throw new Error("the text has no [MASK]");
  // Neither unknown nor masked is an answer.
  return found.flatMap((word, n) => (word === "[MASK]" ? [ofRow(word, ofWords[n], 2)] : []));
}

/** The ids that a generator reads: START, and the last tokens of a text. */
function prompt(text) {
  return started(encoded(target, text));
}

function started(found) {
  const most = Math.min(MOST_TOKENS, longestInput) - 1;
  return [START, ...(most ? found.slice(-most) : [])];
}

/** The logits of the token after ids that a generator reads. */
async function logitsOfNext(read, changes) {
  const { logits } = await pass({ token_ids: ids(read, 1, read.length) }, changes);
  const last = rows(logits).at(-1);
  for (const id of settings.append_end ? NEVER_WRITTEN : [...NEVER_WRITTEN, END]) last[id] = -Infinity;
  return last;
}

/** The ids of a translation and the logits of each; or of a prompt, and of the next token. */
async function stepsOf(text, changes) {
  if (task === "Translator") return greedy(sourceIds(text, MOST_TOKENS), changes);
  const read = prompt(text);
  return { answer: read.slice(1), steps: [await logitsOfNext(read, changes)] };
}

let last = {}; // question and answer of stepsOf: other temperatures need no pass

async function next({ text, temperature = 1, number = 12, position = 0, off, look_ahead }) {
  const question = JSON.stringify([text, off, look_ahead]);
  if (last.question !== question) last = { question, found: stepsOf(text, { off, look_ahead }) };
  const { answer, steps } = await last.found;
  const translates = task === "Translator";
  const [logits, known] = [steps[position], translates ? answer.slice(0, position) : answer];
  const p = softmax(logits, temperature);
  const before = target.decode(known);
  const given = translates ? before : normalized(text, settings);
  const tokens = largest(logits, number).filter((n) => logits[n] > -Infinity).map((n) => ({
    token: target.tokens[n],
    probability: p[n],
    text: n === END ? null : given + target.decode([...known, n]).slice(before.length),
  }));
  const written = translates ? answer.map((id) => target.tokens[id]) : null;
  return { answer: written, entropy: -p.reduce((sum, each) => sum + (each > 0 ? each * Math.log2(each) : 0), 0), tokens };
}

/** Continues a text: at temperature 0 by the search, else by numbers of this browser. */
async function generate({ texts: [text], max_tokens: most, temperature }, signal) {
  const given = encoded(target, text);
  let found = given;
  if (!temperature) {
    const max_tokens = ids([most]);
    const padded = given.length ? given : [0];
    found = await search({ prompt_ids: ids(padded, 1, padded.length), max_tokens });
  } else
    while (found.length < given.length + most && found.at(-1) !== END) {
      const p = softmax(await logitsOfNext(started(found)), temperature);
      let left = Math.random();
      const drawn = p.findIndex((each) => (left -= each) < 0);
      found = [...found, drawn < 0 ? p.indexOf(Math.max(...p)) : drawn];
      await new Promise((resolve) => setTimeout(resolve));
      signal?.throwIfAborted();
    }
  const written = target.decode(found).slice(target.decode(given).length);
  return { answers: [normalized(text, settings) + written] };
}
