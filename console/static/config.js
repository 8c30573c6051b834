// Effective settings; secrets are masked by the node.

import { api, byId, guarded, h, number } from "./core.js";
import { plainTable } from "./table.js";

let keys = [];

function show() {
  const wanted = byId("contains").value.toLowerCase(), setOnly = byId("set-only").checked;
  const shown = keys.filter((one) => one.key.toLowerCase().includes(wanted) && !(setOnly && one.is_default));
  const value = (one) => h("code", {}, one === null ? "not set" : typeof one === "string" ? one : JSON.stringify(one));
  byId("settings").replaceChildren(plainTable("Settings", ["Key", "Value", "Origin"],
    shown.map((one) => [h("code", {}, one.key), value(one.value), one.origin ?? (one.is_default ? "default" : "set")])));
  byId("count").textContent = `${number(shown.length)} of ${number(keys.length)} keys`;
}

const load = guarded(async () => {
  const answer = await api("config");
  keys = answer.keys;
  byId("warnings").replaceChildren(...answer.warnings.map((text) => h("li", {}, `⚠ ${text}`)));
  show();
});

byId("contains").addEventListener("input", show);
byId("set-only").addEventListener("change", show);
load();
