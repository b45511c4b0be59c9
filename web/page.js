"use strict";
// The page of `lastmeter serve`. Sections, in order: helpers, figures, the experiment's text (parsing,
// completion, highlighting), the list of experiments, checking and saving, runs, results, comparison, start-up.
// No HTML is built from strings: names in experiments and ledgers stay text.

/* ---------- helpers ---------- */

const $ = (id) => document.getElementById(id);

/** An element with attributes and children; `on...` are listeners, nothing else is special. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

class Fault extends Error {
  constructor(status, words) { super(words); this.status = status; }
}

async function ask(path, method = "GET", body) {
  const options = { method, headers: body === undefined && method === "GET" ? {} : { "content-type": "application/json" } };
  if (method !== "GET") options.body = JSON.stringify(body ?? {});
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Fault(0, "The server does not respond. Is `lastmeter serve` still running?");
  }
  const json = (answer.headers.get("content-type") || "").startsWith("application/json");
  const value = json ? await answer.json() : { fault: await answer.text() };
  if (!answer.ok) throw new Fault(answer.status, value.fault || `The program answered ${answer.status}.`);
  return value;
}

function later(wait, act) {
  let timer = null;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => act(...given), wait); };
}

const store = {
  get(key) { try { return sessionStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { sessionStorage.setItem(key, value); } catch { /* then a reload forgets it */ } },
  drop(key) { try { sessionStorage.removeItem(key); } catch { /* nothing was kept */ } },
};

/* ---------- figures: three significant digits, and always a unit ---------- */

const digits = (value) => {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
};
const scaled = (value, steps) => {
  const size = Math.abs(value);
  const [unit, name] = steps.find(([unit]) => size / unit >= 0.9995) || steps[steps.length - 1];
  return `${digits(value / unit)}\u00a0${name}`;
};
const TIMES = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"], [1e-12, "ps"]];
const RATES = [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];
const SIZES = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const show = {
  time: (value) => (Math.abs(value) < 0.5e-12 ? "0\u00a0s" : scaled(value, TIMES)),
  rate: (value) => (Math.abs(value) < 0.5 ? "0\u00a0bit/s" : scaled(value, RATES)),
  size: (value) => (value < 1 ? "0\u00a0B" : scaled(value, SIZES)),
  share: (value) => (value === 0 ? "0\u00a0%" : value < 0.0005 ? "<0.1\u00a0%" : `${(value * 100).toFixed(1)}\u00a0%`),
  packets: (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f"),
  number: (value) => digits(value),
};
const gain = (share) => `${share >= 0 ? "+" : "−"}${digits(Math.abs(share) * 100)}\u00a0%`;
/** Differences of shares are in points: twice a loss of 0.1 % is little. */
const points = (difference) => `${difference >= 0 ? "+" : "−"}${Math.abs(difference * 100).toFixed(1)}\u00a0points`;
const seconds = (value) => (value < 1 ? "less than a second" : value < 90 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);

/** A figure whose tooltip has the exact value. */
const figure = (kind, value, unit, what) => make("span", { title: `${what}: exactly ${value} ${unit}` }, show[kind](value));

/* ---------- the text of an experiment ---------- */

/** Parses TOML leniently: half-written text has a context, too.
 *  Gives tokens to paint, keys and values with their paths, and for each place what stands there. */
function scan(text) {
  const tokens = [], keys = [], values = [], places = [];
  const lists = {};
  let table = [], at = 0;
  let frames = [{ kind: "top", path: table, mode: "key", key: [] }];
  const frame = () => frames[frames.length - 1];
  const match = (sticky) => { sticky.lastIndex = at; return sticky.exec(text); };
  const here = () => [...frame().path, ...frame().key];
  const mark = (mode, from = at) => places.push({ at: from, mode, path: [...frame().path], key: [...frame().key] });
  const token = (kind, from, to) => tokens.push({ kind, from, to });
  const value = (from, to, quoted) => values.push({ path: here(), from, to, quoted, text: text.slice(from, to) });
  mark("key");
  while (at < text.length) {
    const c = text[at], now = frame();
    if (c === "\n") {
      at += 1;
      if (frames.length === 1) { now.mode = "key"; now.key = []; }
      mark(now.mode);
    } else if (c === "#") {
      const end = text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at);
      mark("comment");
      token("c", at, end);
      at = end;
    } else if (c === " " || c === "\t" || c === "\r") {
      at += 1;
    } else if (now.kind === "top" && now.mode === "key" && now.key.length === 0 && c === "[") {
      const line = match(/\[\[?[^\]\n]*\]?\]?/y)[0];
      const path = line.replace(/[[\]]/g, "").split(".").map((part) => part.trim()).filter(Boolean);
      mark("header");
      token("h", at, at + line.length);
      if (line.startsWith("[[") && path.length) {
        const name = path.join(".");
        lists[name] = (lists[name] ?? -1) + 1;
        path.push(String(lists[name]));
      }
      table = path;
      at += line.length;
      frames = [{ kind: "top", path: table, mode: "key", key: [] }];
      mark("after", line.endsWith("]") ? at : at + 1);
    } else if (now.mode === "key") {
      const word = match(/[A-Za-z0-9_-]+|"[^"\n]*"?|'[^'\n]*'?/y);
      if (word) {
        const name = word[0].replace(/^["']|["']$/g, "");
        keys.push({ path: [...now.path, ...now.key, name], from: at, to: at + word[0].length });
        token("k", at, at + word[0].length);
        now.last = name;
        at += word[0].length;
      } else if (c === ".") {
        if (now.last) now.key.push(now.last);
        at += 1;
        mark("key");
      } else if (c === "=") {
        if (now.last) now.key.push(now.last);
        now.last = null;
        now.mode = "value";
        at += 1;
        mark("value");
      } else {
        if (c === "}" && frames.length > 1) { frames.pop(); at += 1; mark("after"); } else at += 1;
        if (c === ",") { now.key = []; mark("key"); }
      }
    } else if (c === '"' || c === "'") {
      const triple = text.startsWith(c.repeat(3), at);
      const close = triple ? c.repeat(3) : c;
      let end = at + close.length;
      while (end < text.length && !text.startsWith(close, end) && (triple || text[end] !== "\n")) {
        end += c === '"' && text[end] === "\\" ? 2 : 1;
      }
      end = Math.min(end, text.length);
      const closed = text.startsWith(close, end);
      token("s", at, closed ? end + close.length : end);
      mark("string", at + 1);
      places[places.length - 1].from = at + close.length;
      places[places.length - 1].to = end;
      value(at + close.length, end, true);
      at = closed ? end + close.length : end;
      mark("after", closed ? at : at + 1);
    } else if (c === "{") {
      frames.push({ kind: "table", path: here(), mode: "key", key: [] });
      at += 1;
      mark("key");
    } else if (c === "[") {
      frames.push({ kind: "list", path: here(), mode: "value", key: ["0"] });
      at += 1;
      mark("value");
    } else if (c === "}" || c === "]") {
      if (frames.length > 1) frames.pop();
      at += 1;
      mark("after");
    } else if (c === ",") {
      at += 1;
      if (now.kind === "list") { now.key = [String(Number(now.key[0]) + 1)]; mark("value"); }
      else if (now.kind === "table") { now.mode = "key"; now.key = []; mark("key"); }
    } else {
      const word = match(/[^\s,\]}#"']+/y);
      const end = at + (word ? word[0].length : 1);
      token("n", at, end);
      value(at, end, false);
      at = end;
    }
  }
  return { text, tokens, keys, values, places };
}

/** The context at a position: the path, whether a key or a value is being written, and the word so far. */
function contextAt(scanned, at) {
  const { text, places } = scanned;
  let word = text.slice(0, at).match(/[A-Za-z0-9_-]*$/)[0];
  let place = null;
  for (const one of places) { if (one.at <= at - (one.mode === "string" ? 0 : word.length)) place = one; else break; }
  if (!place) return null;
  if (place.mode === "string") {
    word = text.slice(place.from, at);
    return { ...place, word, from: place.from, to: place.to };
  }
  const header = place.mode === "header" || (place.mode === "key" && place.path.length === 0 && /^\s*\[*$/.test(lineTo(text, at - word.length)));
  return { ...place, word, from: at - word.length, to: at, header };
}
const lineTo = (text, at) => text.slice(text.lastIndexOf("\n", at - 1) + 1, at);

/** The schema and the kinds; empty until they are loaded. */
let known = { schema: { definitions: {} }, kinds: [], profiles: {} };
let nodeParams = new Set(["between", "from", "to"]);
let profileParams = {};

function learn(words) {
  known = words;
  for (const kind of words.kinds) {
    for (const param of kind.parameters) {
      if (/^nodes?\b/.test(param.kind)) nodeParams.add(param.name);
      const folder = param.kind.match(/^profile of (.+)$/);
      if (folder) profileParams[`${kind.name}.${param.name}`] = folder[1];
    }
  }
}

/** The name by which a schema is referenced: `rate`, `time`, `queue`. */
const typeName = (schema) => {
  const reference = schema?.$ref || schema?.allOf?.[0]?.$ref;
  return reference ? reference.split("/").pop() : null;
};
const resolve = (schema) => {
  const name = typeName(schema);
  return name ? known.schema.definitions[name] : schema;
};

/** The schema at a path; `null` where nothing is allowed. */
function schemaAt(path) {
  let schema = known.schema;
  for (const part of path) {
    let inner = resolve(schema);
    if (inner?.anyOf) inner = inner.anyOf.map(resolve).find((one) => one?.properties?.[part] || one?.items) || inner;
    if (inner?.items && /^\d+$/.test(part)) schema = inner.items;
    else schema = inner?.properties?.[part] ?? (typeof inner?.additionalProperties === "object" ? inner.additionalProperties : null);
    if (!schema) return null;
  }
  return schema;
}

const SAMPLES = {
  rate: ["10 Mbit/s", "100 Mbit/s", "1 Gbit/s", "10 Gbit/s"],
  time: ["10 us", "1 ms", "10 ms", "1 s"],
  size: ["64 B", "1500 B", "64 KiB", "1 MB"],
  "time-per-byte": ["10 ns/B"],
};
SAMPLES.draw = SAMPLES.time;
SAMPLES.sizes = SAMPLES.size;

/** The text inserted for a value not chosen yet; `|` is where the caret goes. */
function template(schema) {
  const name = typeName(schema), inner = resolve(schema);
  const fallback = schema.default ?? inner?.default;
  if (SAMPLES[name]) return `"|${typeof fallback === "string" ? fallback : SAMPLES[name][0]}"`;
  if (inner?.enum) return `"|${fallback ?? inner.enum[0]}"`;
  if (inner?.type === "boolean") return `|${fallback === true ? "false" : "true"}`;
  if (inner?.type === "integer" || inner?.type === "number") return `|${fallback ?? Math.max(inner.minimum ?? 1, 1)}`;
  if (inner?.type === "array") return inner.minItems === 2 ? '["|", ""]' : '["|"]';
  if (inner?.type === "object" || name) {
    if (!inner.properties || inner.oneOf) return "{ | }";
    const needed = (inner.required || []).map((key) => `${key} = ${template(inner.properties[key]).replace("|", "")}`);
    return needed.length ? `{ |${needed.join(", ")} }` : "{ | }";
  }
  return '"|"';
}

const text = $("text");
let scanned = scan("");

/** The completions at a position. */
function completions(context) {
  if (!context || context.mode === "comment" || context.mode === "after") return [];
  if (context.header) return headers(context);
  return context.mode === "key" ? keysFor(context) : valuesFor(context);
}

function headers(context) {
  const items = [];
  for (const [name, schema] of Object.entries(known.schema.properties || {})) {
    const inner = resolve(schema);
    const shown = inner.type === "array" ? `[[${name}]]` : inner.type === "object" ? `[${name}]` : null;
    if (shown) items.push({ label: shown, insert: `${shown}\n|`, what: schema.description });
  }
  const from = scanned.text.lastIndexOf("\n", context.from - 1) + 1;
  const top = context.mode === "key" ? keysFor(context) : [];
  return [...top, ...items.map((item) => ({ ...item, from }))];
}

function keysFor(context) {
  const inner = resolve(schemaAt(context.path.concat(context.key)));
  const path = context.path.concat(context.key).join(".");
  const written = new Set(scanned.keys.filter((key) => key.from !== context.from && key.path.slice(0, -1).join(".") === path)
    .map((key) => key.path[key.path.length - 1]));
  const kinds = new Set((inner?.oneOf || []).flatMap((one) => one.required || []));
  const chosen = [...kinds].some((kind) => written.has(kind));
  const follows = /^\s*=/.test(scanned.text.slice(context.to));
  const items = [];
  for (const [name, schema] of Object.entries(inner?.properties || {})) {
    if (written.has(name) || (chosen && kinds.has(name))) continue;
    const needed = (inner.required || []).includes(name) ? "required: " : "";
    const what = schema.description || resolve(schema)?.description || "";
    items.push({ label: name, insert: follows ? name : `${name} = ${template(schema)}`, what: needed + what, first: needed || kinds.has(name) });
  }
  items.sort((a, b) => Boolean(b.first) - Boolean(a.first));
  const lineEmpty = lineTo(scanned.text, context.from).trim() === "";
  if (context.path.length && lineEmpty && !scanned.text.slice(0, context.from).endsWith("{ ")) {
    const below = Object.entries(known.schema.properties || {}).filter(([, schema]) => ["array", "object"].includes(resolve(schema).type));
    for (const [name, schema] of below) {
      const shown = resolve(schema).type === "array" ? `[[${name}]]` : `[${name}]`;
      items.push({ label: shown, insert: `${shown}\n|`, what: schema.description });
    }
  }
  return items;
}

function valuesFor(context) {
  const path = context.path.concat(context.key);
  const schema = schemaAt(path);
  if (!schema) return [];
  const inner = resolve(schema), name = typeName(schema);
  const quote = (label) => (context.mode === "string" ? label : `"${label}"`);
  const last = [...path].reverse().find((part) => !/^\d+$/.test(part));
  const kind = path[path.lastIndexOf(last) - 1];
  let labels = [], what = schema.description || "";
  if (inner?.enum) labels = inner.enum;
  else if (SAMPLES[name]) labels = [...(schema.default ? [schema.default] : []), ...SAMPLES[name]];
  else if (profileParams[`${kind}.${last}`]) labels = known.profiles[profileParams[`${kind}.${last}`]] || [];
  else if (nodeParams.has(last)) labels = [...new Set(scanned.keys.filter((key) => key.path[0] === "nodes" && key.path.length === 2).map((key) => key.path[1]))];
  const items = [...new Set(labels)].map((label) => ({ label: String(label), insert: quote(label), what: "" }));
  if (items.length) items[0].what = what;
  if (context.mode !== "string" && !items.length) {
    if (inner?.type === "boolean") return ["true", "false"].map((label) => ({ label, insert: label, what }));
    items.push({ label: template(schema).replace("|", ""), insert: template(schema), what });
  }
  return items;
}

/** Marks the caret's position after an insertion; no text contains it. */
const CARET = "\u0001";

/** Inserts so that the user's undo reverts it; focus outside the text stays where it is. */
function write(from, to, insert) {
  const caret = insert.indexOf(CARET);
  const plain = insert.replace(CARET, "");
  if (caret < 0 && document.activeElement !== text) {
    text.setRangeText(plain, from, to, "preserve");
    changed();
    return;
  }
  text.focus();
  text.setSelectionRange(from, to);
  if (!document.execCommand("insertText", false, plain)) text.setRangeText(plain, from, to, "end");
  if (caret >= 0) {
    // A quoted sample is selected, so that typing replaces it.
    const after = plain.slice(caret);
    const sample = plain[caret - 1] === '"' ? after.indexOf('"') : 0;
    text.setSelectionRange(from + caret, from + caret + Math.max(sample, 0));
  }
  changed();
}

/* ---------- completing ---------- */

const words = $("words");
let offered = [], picked = 0, context = null;

function offer(asked) {
  context = contextAt(scanned, text.selectionStart);
  const plain = text.selectionStart === text.selectionEnd;
  const typed = context?.word || "";
  let items = plain || asked ? completions(context) : [];
  if (typed && !asked) items = items.filter((item) => item.label.toLowerCase().includes(typed.toLowerCase()) && item.label !== typed);
  items.sort((a, b) => Number(b.label.startsWith(typed)) - Number(a.label.startsWith(typed)));
  const opens = asked || (typed.length > 0 && context?.mode !== "string");
  offered = opens ? items : [];
  picked = 0;
  drawOffer();
}

function drawOffer() {
  words.hidden = offered.length === 0;
  text.toggleAttribute("aria-activedescendant", false);
  if (words.hidden) return;
  words.replaceChildren(...offered.map((item, index) => make("li", {
    id: `word-${index}`, role: "option", "aria-selected": String(index === picked),
    onmousedown: (event) => { event.preventDefault(); picked = index; accept(); },
  }, item.label, make("small", {}, item.what || ""))));
  text.setAttribute("aria-activedescendant", `word-${picked}`);
  place(words, text.selectionStart, context ? context.word.length : 0);
  words.children[picked].scrollIntoView({ block: "nearest" });
}

function accept() {
  const item = offered[picked];
  offered = [];
  drawOffer();
  write(item.from ?? context.from, context.mode === "string" ? context.to : text.selectionEnd, item.insert.replace("|", CARET));
}

/** The width of a character. */
const letter = (() => {
  let width = 0;
  return () => {
    if (!width) {
      const probe = make("pre", { class: "paint" }, "0".repeat(100));
      probe.style.cssText = "position:absolute;width:auto;inset:auto;visibility:hidden;padding:0";
      document.querySelector(".sheet").append(probe);
      width = probe.getBoundingClientRect().width / 100;
      probe.remove();
    }
    return width || 7.8;
  };
})();
const LINE = 20, PAD = 8;

/** Places something below a position in the text. */
function place(element, at, back = 0) {
  const line = scanned.text.slice(0, at).split("\n").length;
  const column = lineTo(scanned.text, at).length - back;
  const sheet = text.getBoundingClientRect();
  const below = line * LINE + PAD - text.scrollTop;
  const height = element.offsetHeight;
  const above = below - LINE - height;
  element.style.top = `${below + height > sheet.height && above > 0 ? above : below}px`;
  const left = PAD + column * letter() - text.scrollLeft;
  element.style.left = `${Math.max(0, Math.min(left, sheet.width - element.offsetWidth - 8))}px`;
}

/* ---------- painting ---------- */

const PAINTED_MAX = 100_000;
let problems = [];

/** The first and last position of a problem. */
function spanOf(problem) {
  const lines = scanned.text.split("\n");
  const before = lines.slice(0, problem.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
  // The program counts characters, a browser counts UTF-16 units.
  const units = [...(lines[problem.line - 1] || "")].slice(0, problem.column - 1).join("").length;
  const from = Math.min(before + units, scanned.text.length);
  const token = scanned.tokens.find((one) => one.from <= from && from < one.to);
  const end = token ? token.to : before + (lines[problem.line - 1] || "").length;
  return [from, Math.max(end, from)];
}

function paint() {
  const bad = problems.filter((problem) => problem.here).map(spanOf);
  // A very long text is not highlighted: it would need too many DOM nodes.
  const tokens = scanned.text.length > PAINTED_MAX ? [] : scanned.tokens;
  const cuts = [0, scanned.text.length, ...tokens.flatMap((one) => [one.from, one.to]), ...bad.flat()];
  const places = [...new Set(cuts)].sort((a, b) => a - b);
  const pieces = [];
  let token = 0;
  for (let index = 0; index + 1 < places.length; index += 1) {
    const [from, to] = [places[index], places[index + 1]];
    while (token < tokens.length && tokens[token].to <= from) token += 1;
    const within = tokens[token]?.from <= from ? tokens[token].kind : "";
    const wrong = bad.some(([start, end]) => start <= from && to <= end) ? "w" : "";
    const piece = scanned.text.slice(from, to);
    pieces.push(within || wrong ? make("span", { class: `${within} ${wrong}`.trim() }, piece) : piece);
  }
  $("paint").replaceChildren(...pieces, "\n");
  const lines = scanned.text.split("\n").length;
  const marked = new Set(problems.filter((problem) => problem.here).map((problem) => problem.line));
  const numbers = [];
  for (let line = 1; line <= lines; line += 1) {
    numbers.push(marked.has(line) ? make("b", {}, `✖ ${line}`) : String(line), "\n");
  }
  $("gutter").replaceChildren(...numbers);
  follow();
}

function follow() {
  $("paint").scrollTop = $("gutter").scrollTop = text.scrollTop;
  $("paint").scrollLeft = text.scrollLeft;
  bubble();
  if (!words.hidden) place(words, text.selectionStart, context ? context.word.length : 0);
}

let bubbleLine = 0;

/** A problem at its place: in the line of the caret, or where a run found it. */
function bubble() {
  const line = scanned.text.slice(0, text.selectionStart).split("\n").length;
  const problem = problems.find((one) => one.here && one.line === (bubbleLine || line));
  const at = $("bubble");
  at.hidden = !problem || !words.hidden;
  if (at.hidden) return;
  const [from, to] = spanOf(problem);
  const mend = problem.suggestion && make("button", { onclick: () => {
    text.focus();
    const word = scanned.text.slice(from, to);
    const quote = /^["']/.test(word) ? word[0] : "";
    write(from, to, quote + problem.suggestion + quote);
  } }, `Write ${problem.suggestion}`);
  at.replaceChildren(make("strong", {}, problem.found), make("div", {}, problem.right), mend || "");
  place(at, from);
}

function hint() {
  const at = contextAt(scanned, text.selectionStart);
  const key = at && scanned.keys.find((one) => one.from <= text.selectionStart && text.selectionStart <= one.to);
  const value = scanned.values.find((one) => one.from <= text.selectionStart && text.selectionStart <= one.to);
  let path = key ? key.path : value ? value.path : at && at.key.length ? at.path.concat(at.key) : null;
  // An item of a list is explained as the list.
  if (path && /^\d+$/.test(path[path.length - 1]) && !schemaAt(path)?.properties) path = path.slice(0, -1);
  const out = $("hint");
  const schema = path && schemaAt(path);
  if (!schema) {
    out.replaceChildren("Ctrl+Space shows what can be written here.");
    return;
  }
  const inner = resolve(schema);
  const focused = out.contains(document.activeElement) ? document.activeElement.textContent : null;
  const fallback = schema.default !== undefined ? ` Default: ${schema.default}.` : "";
  out.replaceChildren(make("b", {}, shownPath(path)), `: ${schema.description || inner?.description || ""}.${fallback}`);
  if (value && quantity(value)) {
    for (const [label, factor] of FACTORS) out.append(make("button", { onclick: () => scale(value, factor) }, label));
  }
  if (focused) [...out.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
}

/* ---------- numbers ---------- */

const FACTORS = [["÷2", 0.5], ["×2", 2]];
const UNITS = /^(\d[\d_]*(?:\.\d+)?)\s*([a-zA-Zµ%/]+)$/;

/** The number and the unit of a value, if it is one that can be halved and doubled. */
function quantity(value) {
  const found = value.quoted ? value.text.match(UNITS) : value.text.match(/^(\d[\d_]*(?:\.\d+)?)$/);
  return found ? { number: Number(found[1].replaceAll("_", "")), unit: found[2] || "" } : null;
}

function scale(value, factor) {
  const { number, unit } = quantity(value);
  let result = number * factor;
  const schema = resolve(schemaAt(value.path));
  if (!unit && schema?.type !== "number") result = Math.max(1, Math.round(result));
  if (unit === "B") result = Math.max(1, Math.round(result));
  const written = String(Number(result.toPrecision(9)));
  write(value.from, value.to, unit ? `${written} ${unit}` : written);
}

/** A path as `--set` takes it: traffic by its name. */
function shownPath(path) {
  if (path[0] !== "traffic" || path.length < 2) return path.join(".");
  const name = scanned.values.find((one) => one.path[0] === "traffic" && one.path[1] === path[1] && one.path[2] === "name");
  return ["traffic", name && name.text ? name.text : path[1], ...path.slice(2)].join(".");
}

const byPath = (found) => new Map(found.values.map((value) => [value.path.join("."), value.text]));

/** The differences from the text as opened. */
function changes() {
  const before = byPath(scan(opened.text)), now = byPath(scanned);
  const list = [];
  for (const value of scanned.values) {
    const path = value.path.join(".");
    if (before.get(path) !== value.text) list.push(`${shownPath(value.path)} = ${value.text}`);
  }
  for (const [path] of before) if (!now.has(path)) list.push(`without ${path}`);
  const more = list.length > 3 ? ` and ${list.length - 3} more` : "";
  return list.slice(0, 3).join(", ") + more;
}

const NUMBERS_MAX = 60;

function drawNumbers() {
  const before = byPath(scan(opened.text));
  // A seed is an identifier: halving it means nothing.
  const all = scanned.values.filter((value) => quantity(value) && value.path[0] !== "seed").slice(0, NUMBERS_MAX);
  const body = $("numbers");
  const focused = document.activeElement?.dataset?.number;
  body.replaceChildren(...all.map((value) => {
    const path = value.path.join("."), name = shownPath(value.path);
    const was = before.get(path);
    const differs = was !== undefined && was !== value.text;
    const button = ([label, factor]) => make("button", {
      "data-number": `${path} ${label}`, "aria-label": `${name} ${label}`,
      onclick: () => scale(scanned.values.find((one) => one.path.join(".") === path), factor),
    }, label);
    const jump = make("button", { title: schemaAt(value.path)?.description || "", onclick: () => {
      text.focus();
      text.setSelectionRange(value.from, value.to);
      reveal(value.from);
    } }, name);
    return make("tr", {}, make("th", { scope: "row" }, jump),
      make("td", {}, differs ? make("span", { class: "was" }, was) : "", make("span", { class: differs ? "now" : "" }, value.text)),
      make("td", {}, ...FACTORS.flatMap((factor) => [button(factor), " "])));
  }));
  $("numbers-box").hidden = all.length === 0;
  if (focused) body.querySelector(`[data-number="${CSS.escape(focused)}"]`)?.focus();
}

function reveal(at) {
  const line = scanned.text.slice(0, at).split("\n").length;
  const top = (line - 1) * LINE;
  if (top < text.scrollTop || top + 3 * LINE > text.scrollTop + text.clientHeight) text.scrollTop = Math.max(0, top - 4 * LINE);
  hint();
  follow();
}

/* ---------- one experiment: open, change, check, save ---------- */

/** `key` is `bundled/NAME` or `file/PATH`; `text` and `hash` are as they were opened. */
let opened = { key: "", text: "", hash: null };
/** The key of the experiment requested last: answers about earlier ones are stale. */
let awaited = "";
let folder = "";
const isFile = () => opened.key.startsWith("file/");
/** Files that were made on this page: only these are overwritten without being named again. */
const isOwn = () => isFile() && store.get(`own:${folder}:${opened.key}`) !== null;
const link = (key) => key.split("/").map(encodeURIComponent).join("/");

function changed() {
  scanned = scan(text.value);
  problems = problems.filter((problem) => !problem.here);
  bubbleLine = 0;
  const differs = text.value !== opened.text;
  $("revert").disabled = !differs;
  $("save").textContent = isOwn() ? "Save" : "Save as…";
  $("save").disabled = isOwn() && !differs;
  if (differs) store.set(`draft:${opened.key}`, text.value); else store.drop(`draft:${opened.key}`);
  paint();
  drawNumbers();
  hint();
  checkSoon();
}

const checkSoon = later(250, async () => {
  const asked = { key: opened.key, text: text.value };
  let found;
  try {
    found = await ask("/api/check", "POST", { experiment: asked.key, text: asked.text });
  } catch (fault) {
    $("checked").replaceChildren(make("p", { class: "fault" }, fault.message));
    return;
  }
  if (asked.key !== awaited || asked.text !== text.value) return;
  take(found.problems);
  if (!found.problems.length) {
    $("title").textContent = found.title || opened.key;
    $("question").textContent = found.question;
    $("checked").replaceChildren(make("span", { class: "fine" }, "✔ Valid. "),
      make("span", { class: "soft" }, `It simulates ${show.time(found.duration)}.`));
  }
});

/** Shows problems in the list, in the margin, and in the text. */
function take(list) {
  const name = opened.key.replace(/^[a-z]+\//, "");
  problems = list.map((problem) => ({ ...problem, here: problem.file === name }));
  paint();
  if (!list.length) return;
  const rows = problems.map((problem) => make("li", {}, make("button", { onclick: () => goTo(problem) },
    make("strong", {}, `${problem.here ? "Line" : `${problem.file}, line`} ${problem.line}${problem.key ? `, ${problem.key}` : ""}: `),
    `${problem.found}. ${problem.suggestion ? `Did you mean ${problem.suggestion}? ` : ""}${problem.right}`)));
  $("checked").replaceChildren(make("ul", { class: "problems" }, ...rows));
}

function goTo(problem) {
  if (!problem.here) return;
  const [from] = spanOf(problem);
  text.focus();
  text.setSelectionRange(from, from);
  bubbleLine = problem.line;
  reveal(from);
}

async function open(key) {
  awaited = key;
  $("checked").replaceChildren();
  let found;
  try {
    found = await ask(`/api/experiments/${link(key)}`);
  } catch (fault) {
    if (key !== awaited) return;
    awaited = opened.key;
    $("checked").replaceChildren(make("p", { class: "fault" }, `${key}: ${fault.message}`));
    return;
  }
  if (key !== awaited) return;
  opened = { key, ...found };
  $("saved").textContent = kept.key === key ? kept.words : "";
  problems = [];
  text.value = store.get(`draft:${key}`) ?? found.text;
  text.scrollTop = 0;
  text.setSelectionRange(0, 0);
  const listed = shelf.find((one) => one.key === key);
  $("title").textContent = listed?.title || key.replace(/^[a-z]+\//, "");
  $("question").textContent = listed?.question || "";
  document.title = `${$("title").textContent} - Lastmeter`;
  drawShelf();
  changed();
  shown = null;
  chosen.clear();
  drawRuns();
  pickRun();
}

$("revert").addEventListener("click", () => { text.focus(); write(0, text.value.length, opened.text); });

$("save").addEventListener("click", () => {
  if (isOwn()) { keep(opened.key.slice(5), opened.hash).catch((fault) => saveAs(fault.message)); return; }
  saveAs("");
});

function saveAs(words) {
  $("save-fault").textContent = words;
  $("save-folder").textContent = folder;
  $("save-note").hidden = !isFile();
  $("save-name").value = `${opened.key.replace(/^[a-z]+\//, "").replace(/\.toml$/, "")}-2.toml`;
  $("save-as").showModal();
  $("save-name").select();
}

/** What was saved last. A copy is opened once it is saved, and the page says so whichever is done first. */
let kept = { key: "", words: "" };

async function keep(path, base) {
  const saved = { key: opened.key, text: text.value };
  const { hash } = await ask(`/api/experiments/file/${link(path)}`, "PUT", { text: saved.text, base });
  store.drop(`draft:${saved.key}`);
  const key = `file/${path}`;
  store.set(`own:${folder}:${key}`, "1");
  kept = { key, words: `Saved as ${folder}/${path}` };
  if (key === opened.key) { opened = { key, text: saved.text, hash }; changed(); } else location.hash = link(key);
  await loadShelf();
  $("saved").textContent = kept.words;
}

$("save-do").addEventListener("click", async () => {
  try {
    const name = $("save-name").value.trim();
    await keep(name, isFile() && opened.key.slice(5) === name ? opened.hash : null);
    $("save-as").close();
  } catch (fault) {
    $("save-fault").textContent = fault.message;
  }
});
$("save-name").addEventListener("keydown", (event) => { if (event.key === "Enter") $("save-do").click(); });
$("save-no").addEventListener("click", () => $("save-as").close());

/* ---------- the shelf ---------- */

let shelf = [];
let lists = null;

async function loadShelf() {
  lists = await ask("/api/experiments");
  folder = lists.folder;
  shelf = [...lists.bundled.map((one) => ({ ...one, key: `bundled/${one.name}` })), ...lists.files.map((one) => ({ ...one, key: `file/${one.name}` }))];
  drawShelf();
}

function drawShelf() {
  if (!lists) return;
  const wanted = $("filter").value.toLowerCase();
  const fits = (one) => `${one.name} ${one.title} ${one.question}`.toLowerCase().includes(wanted);
  const part = (title, of) => {
    const rows = shelf.filter((one) => one.key.startsWith(of) && fits(one)).map((one) => make("li", {},
      make("a", { href: `#${link(one.key)}`, tabindex: "-1", "aria-current": one.key === opened.key ? "true" : null, title: one.question },
        one.title || one.name, make("small", {}, one.name))));
    return rows.length ? [make("h3", {}, title), make("ul", {}, ...rows)] : [];
  };
  const more = lists.more ? [make("p", { class: "soft" }, "There are more files than listed.")] : [];
  const all = [...part("Bundled", "bundled/"), ...part(`In ${folder}`, "file/"), ...more];
  $("list").replaceChildren(...(all.length ? all : [make("p", { class: "soft" }, "None with this name.")]));
  // One stop of the Tab key, so that Run is near; arrows move within the list.
  const first = $("list").querySelector("a[aria-current]") || $("list").querySelector("a");
  if (first) first.tabIndex = 0;
}
$("list").addEventListener("keydown", (event) => {
  const steps = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }, step = steps[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const links = [...$("list").querySelectorAll("a")], at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
});
$("filter").addEventListener("input", drawShelf);

/* ---------- runs ---------- */

let runs = [];
/** The run that is shown, as last reported. */
let shown = null;
const chosen = new Set();
let stream = null, followed = null;
const isOver = (record) => ["done", "stopped", "failed"].includes(record.stands);
const STANDS = { waiting: "waiting", running: "running", stopping: "stopping", done: "done", stopped: "stopped", failed: "failed" };

/** Subscribes to changes of all runs, and to the progress of this one. */
function listen(id) {
  followed = id;
  stream?.close();
  stream = null;
  // A hidden page gives up its connection for one that is visible.
  if (document.hidden) return;
  const own = stream = new EventSource(id ? `/api/events?run=${id}` : "/api/events");
  own.addEventListener("open", () => { $("link").textContent = ""; $("link").className = "link"; });
  own.addEventListener("error", () => {
    $("link").textContent = "No connection: is lastmeter serve still running?";
    $("link").className = "link gone";
  });
  own.addEventListener("runs", (event) => { runs = JSON.parse(event.data); drawRuns(); pickRun(); });
  own.addEventListener("run", (event) => { if (own === stream) hear(JSON.parse(event.data)); });
}
document.addEventListener("visibilitychange", () => listen(followed));

/** If no run was requested, the newest of this experiment is shown, so that a reload finds it. */
function pickRun() {
  if (shown || !opened.key) return;
  const own = runs.filter((record) => record.experiment === opened.key);
  const asked = Number(store.get(`run:${opened.key}`));
  const record = own.find((one) => one.id === asked) || own[0];
  if (record) showRun(record.id); else clearRun();
}

async function begin() {
  const button = $("run");
  button.disabled = true;
  const { key } = opened;
  try {
    const { id } = await ask("/api/runs", "POST", {
      experiment: key, text: text.value, quick: $("quick").checked, note: changes(),
    });
    if (key === opened.key) showRun(id); else store.set(`run:${key}`, String(id));
    if (matchMedia("(max-width: 1180px)").matches) $("result").scrollIntoView({ block: "start" });
  } catch (fault) {
    $("state").replaceChildren(make("p", { class: "fault" }, fault.message));
  }
  button.disabled = false;
}
$("run").addEventListener("click", begin);
$("stop").addEventListener("click", () => shown && stop(shown.id));
const stop = (id) => ask(`/api/runs/${id}/stop`, "POST").catch((fault) => $("state").append(make("p", { class: "fault" }, fault.message)));

function showRun(id) {
  store.set(`run:${opened.key}`, String(id));
  shown = { id, record: null, course: null, view: null, paths: 0, path: 0, resources: 0 };
  $("comparison").hidden = true;
  clearParts();
  $("result-title").textContent = `Run ${id}`;
  $("state").replaceChildren();
  listen(id);
}

function clearParts() {
  for (const id of ["verdict", "facts", "what-ifs", "resources", "paths", "course", "files"]) $(id).replaceChildren();
  for (const chart of charts) chart.destroy();
  charts = [];
}

function clearRun() {
  clearParts();
  $("progress").hidden = true;
  $("result-title").textContent = "Result";
  $("state").replaceChildren(make("p", { class: "soft" }, "Nothing has run yet. Press Run."));
  if (followed !== null) listen(null);
}

/** An update of the run that is shown. */
function hear(news) {
  if (!shown || news.id !== shown.id) return;
  if (news.gone) {
    store.drop(`run:${opened.key}`);
    shown = null;
    clearRun();
    return;
  }
  const over = isOver(news.record);
  const finished = over && !(shown.record && isOver(shown.record));
  shown.record = news.record;
  drawState(news);
  if (news.view && !over) {
    shown.view = news.view;
    drawView();
  }
  if (news.course && !over) {
    const { from, points, ...names } = news.course;
    if (from === 0 || !shown.course) shown.course = { ...names, points: [] };
    shown.course.points = shown.course.points.slice(0, from).concat(points);
    drawCourse();
  }
  if (finished) finish();
}

function drawState(news) {
  const { record, progress } = news;
  $("result-title").textContent = `Run ${record.id}: ${record.title}`;
  const over = isOver(record);
  $("progress").hidden = over;
  const parts = [];
  if (record.note) parts.push(make("p", { class: "soft" }, "With ", make("code", {}, record.note)));
  if (over) {
    if (record.stands === "stopped") parts.push(make("p", { class: "fault" }, "Stopped: the figures cover what had run until then."));
    if (record.stands === "done") parts.push(make("p", { class: "soft" }, `Done in ${record.took.toFixed(1)} s${record.quick ? ", a tenth of the time and no what-ifs" : ""}.`));
    if (record.stands === "failed") parts.push(make("p", { class: "fault" }, `It failed: ${record.words}`));
  } else {
    const asks = progress.of > 0;
    const share = asks ? progress.done / progress.of : progress.share;
    $("bar").value = share;
    const left = !asks && share > 0.02 && news.elapsed > 1 ? `, about ${seconds(news.elapsed / share - news.elapsed)} left` : "";
    $("left").textContent = record.stands === "waiting" ? "waiting for its turn"
      : record.stands === "stopping" ? "stopping"
        : asks ? `what-ifs: ${progress.done} of ${progress.of}` : `${Math.floor(share * 100)} %${left}`;
    $("stop").disabled = record.stands === "stopping";
  }
  $("state").replaceChildren(...parts);
}

/** Fetches the visible part of a ledger, unless the user has paged on meanwhile. */
async function look(own) {
  const { paths, resources } = own;
  const view = await ask(`/api/runs/${own.id}/ledger?paths=${paths}&resources=${resources}`);
  if (own.paths === paths && own.resources === resources) own.view = view;
}

/** A run has ended: its ledger is in a file, of which parts are shown. */
async function finish() {
  const own = shown;
  if (own.record.stands === "failed") {
    const list = own.record.problems;
    if (list.length && own.record.experiment === opened.key) { take(list); goTo(problems[0]); }
    return;
  }
  try {
    await look(own);
    own.course = await ask(`/api/runs/${own.id}/points`);
  } catch (fault) {
    if (own === shown) $("state").append(make("p", { class: "fault" }, fault.message));
  }
  if (own !== shown) return;
  if (own.view) drawView();
  if (own.course) drawCourse();
  drawFiles();
}

function drawRuns() {
  const all = $("all").checked;
  const rows = runs.filter((record) => all || record.experiment === opened.key);
  for (const id of chosen) if (!runs.some((record) => record.id === id)) chosen.delete(id);
  const box = $("runs");
  if (!rows.length) { box.replaceChildren(make("p", { class: "soft" }, "None yet.")); drawChosen(); return; }
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  const row = (record) => {
    const figures = record.figures;
    const cell = (kind, key, unit) => make("td", {}, figures ? figure(kind, figures[key], unit, key) : "");
    const pick = make("input", { type: "checkbox", "data-at": `pick ${record.id}`, "aria-label": `Compare run ${record.id}`, disabled: !figures, onchange: (event) => {
      if (event.target.checked) chosen.add(record.id); else chosen.delete(record.id);
      drawChosen();
    } });
    pick.checked = chosen.has(record.id);
    const title = all && record.experiment !== opened.key ? ` ${record.title}` : "";
    const name = make("button", { "data-at": `show ${record.id}`, title: "Show this run", onclick: () => showOther(record) }, `${record.id}`);
    const act = isOver(record)
      ? make("button", { title: "Delete this run and its results", "aria-label": `Delete run ${record.id}`, onclick: () => ask(`/api/runs/${record.id}`, "DELETE").catch(() => {}) }, "×")
      : make("button", { onclick: () => stop(record.id) }, "Stop");
    return make("tr", { class: record.id === shown?.id ? "open" : "" }, make("td", {}, pick), make("th", { scope: "row", class: "left" }, name, title,
      make("span", { class: "note" }, record.note || (record.quick ? "quick" : "unchanged"))),
    make("td", {}, STANDS[record.stands]), cell("rate", "goodput", "bit/s"), cell("time", "latency", "s"),
    make("td", { class: "wide" }, figures?.limits || ""), make("td", {}, act));
  };
  const titles = ["", "run", "", "goodput", "latency"].map((title) => make("th", { scope: "col" }, title));
  box.replaceChildren(make("div", { class: "table" }, make("table", {}, make("thead", {}, make("tr", {}, ...titles,
    make("th", { scope: "col", class: "wide" }, "what limits"), make("td", {}))), make("tbody", {}, ...rows.map(row)))));
  if (focused) box.querySelector(`[data-at="${focused}"]`)?.focus();
  drawChosen();
}
$("all").addEventListener("change", drawRuns);

function showOther(record) {
  if (record.experiment !== opened.key) {
    store.set(`run:${record.experiment}`, String(record.id));
    location.hash = link(record.experiment);
    return;
  }
  showRun(record.id);
  drawRuns();
}

function drawChosen() {
  $("compare").disabled = chosen.size !== 2;
}

/* ---------- what a run shows ---------- */

/** A bar of shares, each with its class and label. */
function bar(parts, offset = 0) {
  const made = make("div", { class: "bar", "aria-hidden": "true" });
  const piece = (kind, share) => {
    const one = make("i", { class: kind });
    one.style.width = `${Math.max(0, Math.min(share, 1)) * 100}%`;
    return one;
  };
  if (offset > 0) made.append(piece("", offset));
  for (const [kind, share] of parts) if (share > 0) made.append(piece(kind, share));
  return made;
}

function table(caption, titles, rows) {
  const head = titles.map((title) => make("th", { scope: "col", class: title === "" ? "bars" : title.startsWith("~") ? "wide" : "" }, title.replace("~", "")));
  return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
}

const key = (...entries) => make("div", { class: "key" }, ...entries.map(([kind, label]) => make("span", {}, bar([[kind, 1]]), label)));

/** The previous run of the same experiment that has figures. */
function before() {
  return runs.find((record) => record.id < shown.id && record.experiment === shown.record.experiment && record.figures && record.stands === "done" && record.quick === shown.record.quick);
}

function drawView() {
  const { view, record } = shown;
  const over = isOver(record);
  drawVerdict(view, over);
  const totals = view.totals, last = over ? before() : null;
  const fact = (name, kind, value, unit, what, better) => {
    const was = last?.figures[better?.key];
    let change = null;
    if (was !== undefined && was !== null && better) {
      const share = was === 0 ? (value === 0 ? 0 : null) : (value - was) / was;
      const same = share === 0 || (share !== null && Math.abs(share) < 1e-9);
      const good = better.up ? value > was : value < was;
      const words = same ? "same as" : kind === "share" ? `${points(value - was)} against` : share === null ? `${show[kind](was)} in` : `${gain(share)} against`;
      change = make("small", { class: same ? "" : good ? "up" : "down" }, `${words} run ${last.id}`);
    }
    return make("div", {}, make("dt", {}, name), make("dd", {}, figure(kind, value, unit, what), change));
  };
  $("facts").replaceChildren(
    fact("goodput", "rate", totals.goodput, "bit/s", "delivered bits per second, all paths", { key: "goodput", up: true }),
    fact("mean latency", "time", totals.latency, "s", "mean latency over all delivered packets", { key: "latency", up: false }),
    fact("loss", "share", totals.loss, "of one", "dropped packets per offered packet", { key: "loss", up: false }),
    fact("delivered", "packets", totals.delivered, "packets", "packets that arrived"),
    fact("dropped", "packets", totals.dropped, "packets", "packets dropped, for any reason"),
    fact(over ? "simulated" : "so far", "time", view.duration, "s", "simulated time"),
  );
  drawWhatIfs(view);
  drawResources(view);
  drawPaths(view);
}

function drawVerdict(view, over) {
  const verdict = view.verdict;
  if (!verdict) {
    const words = !over ? "The ledger so far. The verdict comes when all has run." : "";
    $("verdict").replaceChildren(words ? make("p", { class: "words-of quiet" }, words) : "");
    return;
  }
  const limits = verdict.resource !== null;
  $("verdict").replaceChildren(make("p", { class: limits ? "words-of" : "words-of quiet" }, verdict.words,
    make("small", {}, `Confidence: ${verdict.confidence}.${verdict.runner_up ? ` Next: ${verdict.runner_up}.` : ""}`)));
}

function drawWhatIfs(view) {
  const all = view.what_ifs;
  if (!all.length) { $("what-ifs").replaceChildren(); return; }
  const most = Math.max(...all.map((one) => Math.abs(one.gain)), 1e-12);
  const rows = all.slice(0, 8).map((one) => {
    const kind = one.metric === "latency" ? "time" : "rate", unit = kind === "time" ? "s" : "bit/s";
    return make("tr", {}, make("th", { scope: "row" }, one.change), make("td", { class: "bars" }, bar([[one.gain >= 0 ? "good" : "worse", Math.abs(one.gain) / most]])),
      make("td", {}, gain(one.gain)), make("td", { class: "wide" }, `${one.metric} `, figure(kind, one.predicted, unit, `${one.metric}, predicted`)));
  });
  $("what-ifs").replaceChildren(make("h3", {}, "What if"), table("Each change, run again in the model, best first", ["change", "", "better by", "~predicted"], rows));
}

function pager(part, size, act) {
  if (part.count <= part.rows.length) return null;
  const last = Math.min(part.from + part.rows.length, part.count);
  const button = (label, from, off) => make("button", { disabled: off, onclick: () => act(from) }, label);
  return make("div", { class: "more" }, button("← previous", Math.max(0, part.from - size), part.from === 0),
    `${show.packets(part.from + 1)} to ${show.packets(last)} of ${show.packets(part.count)}`, button("next →", part.from + size, last >= part.count));
}

/** Another part of the ledger; only of a finished run. */
async function page(change) {
  Object.assign(shown, change);
  if (!isOver(shown.record)) return;
  const own = shown;
  try {
    await look(own);
  } catch (fault) {
    $("state").append(make("p", { class: "fault" }, fault.message));
  }
  if (own === shown) drawView();
}

function drawResources(view) {
  const part = view.resources;
  if (!part.count) { $("resources").replaceChildren(); return; }
  const limit = view.verdict?.resource;
  const rows = part.rows.map((one) => {
    const uses = Object.entries(one.by_stage).sort((a, b) => b[1] - a[1]);
    const most = uses.length ? `${uses[0][0]}` : "";
    return make("tr", { class: one.name === limit ? "limits" : "" }, make("th", { scope: "row" }, one.name, one.name === limit ? " ◀ limits" : ""),
      make("td", { class: "bars" }, bar([["serve", one.busy], ["blocked", one.blocked]])),
      make("td", {}, figure("share", one.busy, "of one", "busy")), make("td", {}, one.blocked > 0 ? figure("share", one.blocked, "of one", "blocked") : ""),
      make("td", { class: "wide" }, most));
  });
  keepOpen($("resources"), make("h3", {}, "Resources"), key(["serve", "busy"], ["blocked", "blocked"]),
    table("Utilisation of each resource", ["resource", "", "busy", "blocked", "~mostly by"], rows), pager(part, 50, (resources) => page({ resources })));
}

/** Replaces a box's content and keeps the keyboard focus. */
function keepOpen(box, ...children) {
  const scrolled = box.querySelector(".table")?.scrollLeft;
  const focus = document.activeElement?.closest?.("#paths select, .table");
  const wanted = focus && box.contains(focus) ? focus.tagName : null;
  box.replaceChildren(...children.filter(Boolean));
  if (scrolled) box.querySelector(".table").scrollLeft = scrolled;
  if (wanted) box.querySelector(wanted === "SELECT" ? "select" : ".table")?.focus({ preventScroll: true });
}

function drawPaths(view) {
  const part = view.paths;
  if (!part.count) { $("paths").replaceChildren(); return; }
  shown.path = Math.min(shown.path, part.rows.length - 1);
  const path = part.rows[shown.path];
  const choice = make("select", { "aria-label": "Which path", onchange: (event) => { shown.path = Number(event.target.value); drawPaths(shown.view); } },
    ...part.rows.map((one, index) => make("option", { value: index }, `${one.name}, ${one.class}`)));
  choice.value = String(shown.path);
  const mean = (times) => times?.mean ?? 0;
  const whole = path.stages.reduce((sum, one) => sum + mean(one.wait) + mean(one.service) + mean(one.blocked), 0) || 1;
  let so = 0;
  const limit = view.verdict?.resource;
  const rows = path.stages.map((one) => {
    const [wait, service, blocked] = [mean(one.wait), mean(one.service), mean(one.blocked)];
    const drops = Object.entries(one.drops).map(([reason, count]) => `${show.packets(count)} ${reason}`).join(", ");
    const made = make("tr", { class: limit && one.resource === limit ? "limits" : "" }, make("th", { scope: "row", title: one.resource ? `served by ${one.resource}` : "pure delay" }, one.name),
      make("td", { class: "bars" }, bar([["wait", wait / whole], ["serve", service / whole], ["blocked", blocked / whole]], so / whole)),
      make("td", {}, wait > 0 ? figure("time", wait, "s", "mean wait") : ""), make("td", {}, service > 0 ? figure("time", service, "s", "mean service") : ""),
      make("td", { class: "wide" }, blocked > 0 ? figure("time", blocked, "s", "mean time blocked") : ""), make("td", {}, drops));
    so += wait + service + blocked;
    return made;
  });
  const totals = path.totals;
  const latency = totals.latency ? `Mean ${show.time(totals.latency.mean)}, median ${show.time(totals.latency.p50)}, p99 ${show.time(totals.latency.p99)}; ` : "";
  const facts = latency
    + `${show.rate(totals.goodput)}; ${show.packets(totals.delivered.packets)} of ${show.packets(totals.offered.packets)} packets arrived.`;
  const more = path.stages_count > path.stages.length ? make("p", { class: "soft" }, `The first ${path.stages.length} of ${path.stages_count} stages; the files have all.`) : null;
  keepOpen($("paths"), make("h3", {}, "Where the time goes"), part.count > 1 ? choice : make("span", {}, `${path.name}, ${path.class}`),
    pager(part, 20, (paths) => page({ paths, path: 0 })), make("p", { class: "soft" }, facts), key(["wait", "wait"], ["serve", "service"], ["blocked", "blocked"]),
    table("Mean time of a delivered packet at each stage, in path order", ["stage", "", "wait", "service", "~blocked", "dropped"], rows), more);
}

function drawFiles() {
  const { id, record } = shown;
  const file = (name, words) => make("a", { href: `/runs/${id}/${name}` }, words);
  const links = [file("ledger.json", `ledger.json (${show.size(record.size)})`), file("paths.parquet", "paths.parquet"), file("stages.parquet", "stages.parquet"),
    file("resources.parquet", "resources.parquet"), file("experiment.toml", "experiment.toml")];
  const report = file("ledger.html", "the ledger as a page");
  report.target = "_blank";
  report.rel = "noopener";
  links.unshift(report);
  $("files").replaceChildren(make("h3", {}, "Files"), make("p", {}, ...links));
}

/* ---------- curves ---------- */

let charts = [];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [1, 4]];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The three plots of a run over simulated time; existing ones only get new points. */
function drawCourse() {
  const course = shown.course;
  if (!course || !course.points?.length) return;
  const points = course.points, column = (of) => points.map(of);
  const several = course.paths.length > 1;
  const pictures = [
    { title: "Goodput", kind: "rate", names: several ? ["all paths", ...course.paths] : course.paths,
      data: several ? [column((p) => p.goodput), ...course.paths.map((_, index) => column((p) => p.paths[index]))] : [column((p) => p.goodput)] },
    { title: "Mean latency of packets delivered", kind: "time", names: ["latency"], data: [column((p) => p.latency)] },
    { title: "Utilisation of resources", kind: "share", names: course.resources, data: course.resources.map((_, index) => column((p) => p.used[index])) },
  ].filter((picture) => picture.data.length);
  const times = column((p) => p.at);
  const fits = charts.length === pictures.length && charts.every((chart, index) => chart.series.length === pictures[index].data.length + 1);
  if (fits && $("course").childElementCount) {
    charts.forEach((chart, index) => {
      chart.setData([times, ...pictures[index].data]);
      chart.fill(times, pictures[index]);
    });
    return;
  }
  for (const chart of charts) chart.destroy();
  charts = [];
  $("course").replaceChildren(make("h3", {}, "Over simulated time"));
  for (const picture of pictures) drawChart(times, picture);
}

function drawChart(times, picture) {
  const box = make("div", { class: "chart" });
  const at = make("div", { role: "img", "aria-label": `${picture.title} over time; the table below has the figures` });
  const details = make("details", {}, make("summary", {}, "Table"));
  box.append(make("div", { class: "title" }, picture.title), at, details);
  $("course").append(box);
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "11px system-ui" };
  const chart = new uPlot({
    width: Math.max(240, at.clientWidth), height: 170, cursor: { y: false },
    scales: { x: { time: false }, y: { range: (_, low, high) => [0, picture.kind === "share" ? 1.02 : (high || 1) * 1.08] } },
    axes: [{ ...axis, values: (_, all) => all.map((value) => show.time(value)), space: 70, size: 30 }, { ...axis, values: (_, all) => all.map((value) => show[picture.kind](value)), size: 84 }],
    series: [{ label: "time", value: (_, value) => (value === null ? "" : show.time(value)) }, ...picture.names.map((name, index) => ({
      label: name, stroke: colour(`--c${(index % 6) + 1}`), width: 1.8, dash: DASHES[Math.floor(index / 6) + (index % 6)] || [], points: { show: times.length < 3 },
      value: (_, value) => (value === null || value === undefined ? "" : show[picture.kind](value)),
    }))],
  }, [times, ...picture.data], at);
  // The table is made when it is opened, and again when there are new points.
  chart.fill = (times, picture) => {
    if (!details.open) { details.querySelector(".table")?.remove(); return; }
    const rows = times.map((time, row) => make("tr", {}, make("th", { scope: "row" }, show.time(time)),
      ...picture.data.map((column) => make("td", {}, column[row] === null ? "none delivered" : show[picture.kind](column[row])))));
    details.querySelector(".table")?.remove();
    details.append(table(`${picture.title}, from the time before to this one`, ["time", ...picture.names], rows));
  };
  details.addEventListener("toggle", () => { const now = chart.last || [times, picture]; chart.fill(...now); });
  const fill = chart.fill;
  chart.fill = (...now) => { chart.last = now; fill(...now); };
  charts.push(chart);
}

const redraw = later(120, () => {
  for (const chart of charts) chart.destroy();
  charts = [];
  $("course").replaceChildren();
  if (shown) drawCourse();
  paint();
});
let wide = innerWidth;
addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; redraw(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

/* ---------- comparing ---------- */

$("compare").addEventListener("click", async () => {
  const [first, second] = [...chosen].sort((a, b) => a - b);
  const box = $("comparison");
  box.hidden = false;
  $("comparison-title").textContent = `Run ${first} and run ${second}`;
  $("compared").replaceChildren(make("p", { class: "soft" }, "Reading both ledgers"));
  try {
    drawCompared(await ask(`/api/compare?first=${first}&second=${second}`), first, second);
  } catch (fault) {
    $("compared").replaceChildren(make("p", { class: "fault" }, fault.message));
  }
  $("comparison-title").focus();
  box.scrollIntoView({ block: "nearest" });
});

function drawCompared(found, first, second) {
  const note = (id) => runs.find((record) => record.id === id)?.note || "unchanged";
  const units = { time: "s", rate: "bit/s", share: "of one", packets: "packets", number: "" };
  const part = (caption, lines) => {
    const rows = lines.rows.map((line) => {
      const cell = (value) => make("td", {}, value === null ? "none" : figure(line.kind, value, units[line.kind], line.what));
      const same = line.change === "same";
      return make("tr", {}, make("th", { scope: "row" }, `${line.of}: ${line.what}`), cell(line.first), cell(line.second), make("td", {}, same ? "same" : make("b", {}, line.change)));
    });
    const more = lines.count > lines.rows.length ? make("p", { class: "soft" }, `The first ${lines.rows.length} of ${lines.count}.`) : null;
    return [table(caption, ["", `run ${first}`, `run ${second}`, "change"], rows), more];
  };
  const verdict = (index, id) => make("p", {}, make("b", {}, `Run ${id}`), ` (${note(id)}): ${found.verdicts[index] || "no verdict"}`);
  $("compared").replaceChildren(...[verdict(0, first), verdict(1, second),
    found.same ? make("p", { class: "soft" }, "Both have the same text and seed.") : null,
    ...part("Totals", found.totals), ...part("Mean time at each stage, largest change first", found.stages),
    ...part("Utilisation of each resource, largest change first", found.resources)].filter(Boolean));
}

/* ---------- the keyboard ---------- */

text.addEventListener("input", () => { changed(); offer(false); });
text.addEventListener("scroll", follow);
text.addEventListener("blur", () => { offered = []; drawOffer(); });
document.addEventListener("selectionchange", () => { if (document.activeElement === text) { hint(); bubble(); } });
text.addEventListener("click", () => { bubbleLine = 0; offered = []; drawOffer(); });
text.addEventListener("keydown", (event) => {
  const open = !words.hidden;
  if (event.key === " " && event.ctrlKey) { event.preventDefault(); offer(true); return; }
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); begin(); return; }
  if (event.key.startsWith("Arrow")) bubbleLine = 0;
  if (event.key === "Escape") {
    if (open) { event.preventDefault(); offered = []; drawOffer(); }
    return;
  }
  if (!open) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    picked = (picked + (event.key === "ArrowDown" ? 1 : offered.length - 1)) % offered.length;
    drawOffer();
  } else if (event.key === "Enter" || event.key === "Tab") {
    event.preventDefault();
    accept();
  } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    offered = [];
    drawOffer();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.ctrlKey && event.target !== text && !$("save-as").open) begin();
});

/* ---------- the start ---------- */

const FIRST = "bundled/first-path";
const hashed = () => {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
};
addEventListener("hashchange", () => { if (hashed() && hashed() !== awaited) open(hashed()); });

(async () => {
  if (matchMedia("(max-width: 700px)").matches) $("shelf").open = false;
  listen(null);
  const words = ask("/api/words").then((found) => { learn(found); hint(); drawNumbers(); });
  try {
    await loadShelf();
  } catch (fault) {
    $("list").replaceChildren(make("p", { class: "fault" }, fault.message));
  }
  await open(hashed() || FIRST);
  await words.catch(() => {});
})();
