// The distribution of the next token under a temperature, and texts drawn from it.
import { ask } from "../api.js";
import { bars, h, shown, slider } from "../elements.js";
import { t } from "../words.js";

export function open(body, { model, settings, run, announce, setText, text }) {
  settings.temperature ??= 1;
  settings.seed ??= 0;
  const distribution = h("div", {});
  const written = h("div");
  const controls = h("div", { class: "controls" },
    slider(t("temperature"), { min: 0, max: 2, step: 0.05 }, settings.temperature, (value) => {
      settings.temperature = value;
      update(text());
    }),
    h("button", { type: "button", class: "solid", onclick: write }, t("write")));
  body.append(h("h2", {}, t("next")), h("p", { class: "note" }, t("nextNote")), controls, written, distribution);

  function clear() {
    written.replaceChildren();
  }

  function update(text) {
    written.replaceChildren();
    const question = { model: model.name, text, temperature: settings.temperature };
    run(async (signal) => {
      const { tokens, entropy } = await ask("next", question, signal);
      const rows = tokens.map((each) => ({ ...each, name: each.text === null ? t("end") : shown(each.token) }));
      const values = { bits: Math.max(0, entropy).toFixed(2), choices: (2 ** entropy).toFixed(1) };
      distribution.replaceChildren(
        bars(rows, t("next"), (row) => setText(row.text)),
        h("p", { class: "note" }, t("entropy", values)));
      announce(rows[0].name);
    });
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
