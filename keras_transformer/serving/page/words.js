// The page's words in the reader's language.
import en from "./words/en.js";
import zh from "./words/zh.js";

const dictionaries = { en, zh };
let language = kept("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // a browser that keeps nothing asks again next time
  }
}

export function currentLanguage() {
  return language;
}

export function setLanguage(name) {
  language = name;
  keep("language", name);
}

/** The words of a path such as "tabs.beams", with {names} replaced; a count chooses one or other. */
export function t(path, values = {}) {
  let found = path.split(".").reduce((words, name) => words?.[name], dictionaries[language]);
  if (typeof found === "object") found = values.count === 1 ? found.one : found.other;
  return (found ?? path).replace(/\{(\w+)\}/g, (_, name) => values[name]);
}
