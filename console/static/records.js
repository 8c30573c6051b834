// Rows of messages: one line each, which opens to text, JSON and hex. Hex is never left out.

import { bytes, h, number, time } from "./core.js";

const PREVIEW_CHARS = 200;
const HEX_BYTES = 4096;

/** Return the bytes of `<name>` or `<name>_base64`, or null. */
export function bytesOf(record, name) {
  const encoded = record[`${name}_base64`];
  if (encoded !== undefined) return Uint8Array.from(atob(encoded), (one) => one.charCodeAt(0));
  return record[name] === null || record[name] === undefined ? null : new TextEncoder().encode(record[name]);
}

export function hexOf(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_BYTES); at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const hex = part.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  if (data.length > HEX_BYTES) lines.push(`… ${number(data.length - HEX_BYTES)} bytes more`);
  return lines.join("\n");
}

/** Return text of a field for one line: hex where the bytes are no text. */
export function previewOf(record, name) {
  if (record[name] !== undefined) return record[name] === null ? "null" : record[name].slice(0, PREVIEW_CHARS);
  const data = bytesOf(record, name).subarray(0, 32);
  return `hex ${[...data].map((one) => one.toString(16).padStart(2, "0")).join(" ")}`;
}

function block(title, text) {
  return [h("h3", {}, title), h("pre", { tabindex: "0" }, text)];
}

function valueViews(record) {
  const data = bytesOf(record, "value");
  if (data === null) return [h("p", {}, "The value is null (a tombstone).")];
  const views = [];
  const text = record.value;
  if (text === undefined) views.push(h("p", { class: "quiet" }, "The value is not UTF-8 text."));
  else {
    let shown = text, title = "Text";
    try {
      const value = JSON.parse(text);
      if (typeof value === "object" && value !== null) [shown, title] = [JSON.stringify(value, null, 2), "JSON"];
    } catch { /* It is text. */ }
    views.push(...block(title, shown));
  }
  return [...views, h("details", { open: text === undefined }, h("summary", {}, "Hex"), h("pre", { tabindex: "0" }, hexOf(data)))];
}

function details(record, actions) {
  const headers = record.headers.map((one) => h("li", {}, h("code", {}, one.name), " = ", previewOf(one, "value")));
  const dead = Object.entries(record.dlq ?? {}).map(([name, value]) => h("li", {}, h("code", {}, `dlq.${name}`), " = ", value));
  return h("div", { class: "record" },
    headers.length || dead.length ? [h("h3", {}, "Headers"), h("ul", {}, headers, dead)] : [],
    record.key === undefined ? block("Key, hex", hexOf(bytesOf(record, "key"))) : [],
    valueViews(record), actions ? actions(record) : []);
}

/** Return the rows of one record: a line, and what opens below it. */
export function rowsOf(record, { cells = [], actions } = {}) {
  const id = `record-${record.partition}-${record.offset}`;
  const below = h("tr", { hidden: true, id }, h("td", { colspan: 5 + cells.length }));
  const button = h("button", { type: "button", "aria-expanded": "false", "aria-controls": id, onclick: () => {
    const opens = below.hidden;
    if (opens) below.firstChild.replaceChildren(details(record, actions));
    below.hidden = !opens;
    button.setAttribute("aria-expanded", opens);
  } }, `${record.partition}/${record.offset}`);
  const line = h("tr", {},
    h("td", {}, button), cells.map((cell) => h("td", {}, cell(record))),
    h("td", { class: "mono" }, time(record.timestamp_unix_ms)),
    h("td", { class: "mono" }, record.key === null ? h("span", { class: "quiet" }, "null") : previewOf(record, "key")),
    h("td", { class: "number" }, bytes(bytesOf(record, "value")?.length ?? 0)),
    h("td", { class: "mono" }, h("span", { class: "preview" }, previewOf(record, "value"))));
  return [line, below];
}
