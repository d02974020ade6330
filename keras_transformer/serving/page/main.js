// The frame: models, text, tabs, one or two panes, language and colors.
import { models, useKey } from "./api.js";
import { h, inLine, roving } from "./elements.js";
import * as attention from "./views/attention.js";
import * as beams from "./views/beams.js";
import * as labels from "./views/labels.js";
import * as text from "./views/text.js";
import * as translation from "./views/translation.js";
import { currentLanguage, keep, kept, setLanguage, t } from "./words.js";

const VIEWS = { translation, beams, attention, labels, text };
const OF_TASK = {
  translate: ["translation", "beams", "attention", "text"],
  generate: ["text", "attention"],
  tag: ["labels", "attention"],
  classify: ["labels", "attention"],
  fill: ["labels", "attention"],
};
const EXAMPLES = {
  dates: ["April 22, 2019", "22 Apr 2019", "Monday, July 4, 1776"],
  "zh-en": ["我喜欢喝茶。", "他昨天给我写了一封信。", "你会说英语吗？"],
  shakespeare: ["ROMEO:", "To be, or not", "My lord, the king"],
  translate: ["April 22, 2019"],
  generate: ["Once upon a time"],
  tag: ["I saw a saw.", "Time flies like an arrow."],
  classify: ["Not a good film.", "A warm, funny and generous story."],
  fill: ["The [MASK] barks.", "He drank a [MASK] of tea."],
};
const PAUSE = 160; // milliseconds without a key before the model is asked

const element = (id) => document.getElementById(id);
const state = { models: [], names: ["", ""], view: "translation", two: false, settings: [{}, {}], panes: [] };

/** The kind of a task, by whatever name: "translate", "Translator", "translation", ... */
function kindOf(task) {
  const kinds = [[/transl/i, "translate"], [/tag/i, "tag"], [/class/i, "classify"], [/fill|mask/i, "fill"]];
  return kinds.find(([pattern]) => pattern.test(task))?.[1] ?? "generate";
}

function modelOf(n) {
  return state.models.find((model) => model.name === state.names[n]) ?? state.models[0];
}

function examplesOf({ examples, name, kind }) {
  return examples ?? EXAMPLES[name] ?? EXAMPLES[kind];
}

function views() {
  return OF_TASK[modelOf(0).kind];
}

/** Everything that depends on language, models or view. */
function draw() {
  document.documentElement.lang = currentLanguage() === "zh" ? "zh-Hans" : "en";
  document.title = t("title");
  for (const each of document.querySelectorAll("[data-text]")) each.textContent = t(each.dataset.text);
  const other = currentLanguage() === "zh" ? ["en", "English"] : ["zh-Hans", "中文"];
  element("language").lang = other[0];
  element("language").textContent = other[1];
  element("theme").textContent = t("theme", { name: t(`themes.${kept("theme") ?? "system"}`) });
  if (!state.models.length) return;

  const { kind, name } = modelOf(0);
  const same = state.models.filter((model) => model.kind === kind);
  if (!same.some((model) => model.name === state.names[1]))
    state.names[1] = (same.find((model) => model.name !== name) ?? same[0]).name;
  if (!views().includes(state.view)) state.view = views()[0];
  drawSelect("model", state.models, name);
  drawSelect("other", same, state.names[1]);
  element("second").hidden = !state.two;
  element("compare").textContent = t(state.two ? "alone" : "compare");
  element("compare").setAttribute("aria-pressed", String(state.two));
  element("text-label").textContent = t(`ask.${kind}`);
  element("text").lang = name.startsWith("zh") ? "zh-Hans" : "";
  drawExamples(examplesOf(modelOf(0)));
  drawTabs();
  drawPanes();
}

function drawSelect(id, models, chosen) {
  const options = models.map(({ name }) => h("option", { value: name, selected: name === chosen }, name));
  element(id).replaceChildren(...options);
}

function drawExamples(texts) {
  const buttons = texts.map((example) =>
    h("button", { type: "button", onclick: () => setText(example, true) }, example));
  element("examples").replaceChildren(h("span", {}, t("examples")), ...buttons);
}

function drawTabs() {
  const tabs = views().map((view) =>
    h("button", {
      type: "button", role: "tab", id: `tab-${view}`, "aria-controls": "view",
      "aria-selected": String(view === state.view),
      onclick: () => choose(view),
    }, t(`tabs.${view}`)));
  element("tabs").replaceChildren(...tabs);
  roving(tabs, inLine);
  tabs.forEach((tab, n) => tab.setAttribute("tabindex", views()[n] === state.view ? "0" : "-1"));
  element("view").setAttribute("aria-labelledby", `tab-${state.view}`);
}

function choose(view) {
  state.view = view;
  drawTabs();
  drawPanes();
  element(`tab-${view}`).focus();
}

function drawPanes() {
  element("panes").classList.toggle("two", state.two);
  state.panes.forEach((pane) => pane.close());
  state.panes = (state.two ? [0, 1] : [0]).map(openPane);
  element("panes").replaceChildren(...state.panes.map((pane) => pane.section));
  update();
}

function openPane(n) {
  const model = modelOf(n);
  const problem = h("p", { class: "error", role: "alert", hidden: true });
  const body = h("div");
  const title = state.two ? h("h2", { class: "eyebrow" }, model.name) : null;
  const section = h("section", { class: "pane", "aria-label": model.name }, title, problem, body);
  const run = latest((error) => {
    problem.textContent = t("failed", { reason: error.message });
    problem.hidden = false;
  });
  const settings = (state.settings[n][`${model.name}/${state.view}`] ??= { kind: state.kind });
  const busy = async (work) => {
    section.setAttribute("aria-busy", "true");
    const done = await run(work);
    if (done) problem.hidden = true;
    section.setAttribute("aria-busy", "false");
  };
  const view = VIEWS[state.view].open(body, { model, settings, run: busy, announce, setText, text: () => element("text").value });
  return { section, update: (text) => (text.trim() || model.kind === "generate" ? view.update(text) : view.clear()), close: () => run(() => {}) };
}

/** A function that runs `work(signal)`; a later call aborts the earlier one. */
function latest(onError) {
  let controller = null;
  return async (work) => {
    controller?.abort();
    const mine = (controller = new AbortController());
    try {
      await work(mine.signal);
      return true;
    } catch (error) {
      if (!mine.signal.aborted) onError(error);
      return false;
    }
  };
}

function announce(what) {
  element("status").textContent = t("ready", { what });
}

let timer = 0;
function update() {
  clearTimeout(timer);
  const text = element("text").value;
  const address = new URLSearchParams({ model: modelOf(0).name, view: state.view, text });
  if (state.two) address.set("other", state.names[1]);
  history.replaceState(null, "", `#${address}`);
  for (const pane of state.panes) pane.update(text);
}

function setText(text, focus = false) {
  element("text").value = text;
  grow();
  update();
  if (focus) element("text").focus();
}

function grow() {
  const area = element("text");
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

function listen() {
  element("text").addEventListener("input", () => {
    grow();
    clearTimeout(timer);
    timer = setTimeout(update, PAUSE);
  });
  element("question").addEventListener("submit", (event) => event.preventDefault());
  element("model").addEventListener("change", (event) => {
    const before = modelOf(0);
    state.names[0] = event.target.value;
    const now = modelOf(0);
    if (now.kind !== before.kind || examplesOf(before).includes(element("text").value))
      element("text").value = examplesOf(now)[0];
    grow();
    draw();
  });
  element("other").addEventListener("change", (event) => {
    state.names[1] = event.target.value;
    drawPanes();
  });
  element("compare").addEventListener("click", () => {
    state.two = !state.two;
    draw();
  });
  element("language").addEventListener("click", () => {
    setLanguage(currentLanguage() === "zh" ? "en" : "zh");
    draw();
  });
  element("theme").addEventListener("click", () => {
    const next = { system: "light", light: "dark", dark: "system" }[kept("theme") ?? "system"];
    keep("theme", next === "system" ? null : next);
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("hashchange", () => {
    readAddress();
    draw();
  });
}

/** The address may name a model, a view, a kind of attention and a text: #model=dates&view=beams&text=... */
function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  state.names = [address.get("model") ?? state.models[0].name, address.get("other") ?? ""];
  state.two = address.has("other");
  state.view = address.get("view") ?? state.view;
  state.kind = address.get("kind");
  element("text").value = address.get("text") ?? examplesOf(modelOf(0))[0];
}

/** A form for the API key, where the server asks for one. It is kept for this visit alone. */
function askKey() {
  const input = h("input", { type: "password", autocomplete: "off", required: true });
  const form = h("form", { class: "key" }, h("label", {}, t("key"), input), h("button", { class: "solid" }, t("open")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(input.value);
    begin();
  });
  element("panes").replaceChildren(form);
  input.focus();
}

async function begin() {
  element("panes").textContent = t("loading");
  try {
    state.models = (await models()).map((model) => ({ ...model, kind: kindOf(model.task) }));
  } catch (error) {
    if (error.status === 401) return askKey();
    element("panes").replaceChildren(h("p", { class: "error", role: "alert" }, t("failed", { reason: error.message })));
    return;
  }
  if (!state.models.length) {
    element("panes").textContent = t("none");
    return;
  }
  readAddress();
  draw();
  grow();
}

draw();
listen();
begin();
