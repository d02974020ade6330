// The distribution of a token under a temperature: the next one of a text, or one of a translation.
import { ask } from "../api.js";
import { bars, h, inLine, roving, shown, slider } from "../elements.js";
import { t } from "../words.js";

export function open(body, { model, settings, run, announce, setText, text }) {
  settings.temperature ??= 1;
  settings.seed ??= 0;
  const translates = model.kind === "translate";
  const answer = h("div", { class: "reading", role: "group", "aria-label": t("target") });
  const distribution = h("div", {});
  const written = h("div");
  const controls = h("div", { class: "controls" },
    slider(t("temperature"), { min: 0, max: 2, step: 0.05 }, settings.temperature, (value) => {
      settings.temperature = value;
      update(text());
    }),
    translates ? null : h("button", { type: "button", class: "solid", onclick: write }, t("write")));
  const note = h("p", { class: "note" }, t(translates ? "nextOfAnswer" : "nextNote"));
  body.append(h("h2", {}, t("next")), note, answer, controls, written, distribution);

  function clear() {
    for (const each of [answer, written]) each.replaceChildren();
    distribution.replaceChildren(h("p", { class: "note" }, t("empty")));
  }

  function update(text) {
    written.replaceChildren();
    if (settings.text !== text) Object.assign(settings, { text, position: 0 });
    const { temperature, position } = settings;
    run(async (signal) => {
      const found = await ask("next", { model: model.name, text, temperature, position }, signal);
      if (translates) drawAnswer(found.answer);
      const rows = found.tokens.map((each) => ({ ...each, name: each.text === null ? t("end") : shown(each.token) }));
      const values = { bits: Math.max(0, found.entropy).toFixed(2), choices: (2 ** found.entropy).toFixed(1) };
      distribution.replaceChildren(
        bars(rows, t("next"), translates ? null : (row) => setText(row.text)),
        h("p", { class: "note" }, t("entropy", values)));
      announce(rows[0].name);
    });
  }

  /** The tokens of a translation as buttons; they stay while one of them has the focus. */
  function drawAnswer(tokens) {
    if (answer.textContent !== tokens.map(shown).join("")) {
      const choose = (position) => {
        if (position === settings.position) return;
        settings.position = position;
        update(text());
      };
      const buttons = tokens.map((token, n) =>
        h("button", { type: "button", class: "token", onclick: () => choose(n), onfocus: () => choose(n) }, shown(token)));
      roving(buttons, inLine);
      answer.replaceChildren(...buttons);
    }
    [...answer.children].forEach((button, n) => button.setAttribute("aria-pressed", String(n === settings.position)));
  }

  function write() {
    const prompt = text();
    const { temperature } = settings;
    const question = { model: model.name, texts: [prompt], max_tokens: 60, temperature, seed: settings.seed++ };
    run(async (signal) => {
      const { answers } = await ask("generate", question, signal);
      const answer = [answers[0]].flat()[0];
      const whole = answer.text ?? answer;
      const start = whole.startsWith(prompt) ? prompt : "";
      written.replaceChildren(
        h("h3", {}, t("written", { temperature })),
        h("p", { class: "answer" }, h("span", { class: "given" }, start), whole.slice(start.length)));
      announce(whole);
    });
  }

  return { update, clear };
}
