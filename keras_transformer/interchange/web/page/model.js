// The model in this folder: its settings, and its graphs, which ONNX Runtime runs in this browser.
import * as ort from "./runtime/ort.wasm.bundle.min.mjs";

ort.env.wasm.numThreads = 1; // more need cross-origin isolation, which few static servers can give
ort.env.wasm.wasmPaths = { wasm: new URL("runtime/ort-wasm-simd-threaded.wasm", import.meta.url).href };

async function settingsOf(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: ${response.status} ${response.statusText}`);
  return response.json();
}

export const settings = await settingsOf("model/settings.json");

const sessions = {};
function session(graph) {
  return (sessions[graph] ??= ort.InferenceSession.create(`model/${graph}.onnx`));
}
session(settings.graphs[0]); // while the reader writes

/** Rows of ids as a tensor of some shape. */
export function ids(values, ...shape) {
  return new ort.Tensor("int32", Int32Array.from(values.flat()), shape);
}

/** The ids that a graph with the search inside answers, for one text. */
export async function search(inputs) {
  const { ids } = await (await session("search")).run(inputs);
  return Array.from(ids.data);
}

/** One pass of the model, with or without some heads and the mask: logits, and the weights of attentions. */
export async function pass(inputs, { off = {}, look_ahead = true } = {}) {
  const { attentions, heads } = settings;
  const factors = new Float32Array(attentions.length * heads).fill(1);
  for (const [name, numbers] of Object.entries(off))
    for (const number of numbers) factors[attentions.indexOf(name) * heads + number] = 0;
  const feeds = { ...inputs, heads: new ort.Tensor("float32", factors, [attentions.length, heads]) };
  const graph = await session("pass");
  if (graph.inputNames.includes("look_ahead")) feeds.look_ahead = new ort.Tensor("bool", [look_ahead], []);
  return graph.run(feeds);
}

/** The rows of a tensor (..., rows, columns), as arrays. */
export function rows({ data, dims }) {
  const width = dims.at(-1);
  return Array.from({ length: data.length / width }, (_, n) => data.subarray(n * width, (n + 1) * width));
}
