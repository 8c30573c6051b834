// Users, access keys, rules, and what decides a question.

import { api, byId, confirmed, guarded, h, number, path, query, say, tabs } from "./core.js";
import { plainTable } from "./table.js";

const button = (text, label, onclick) => h("button", { type: "button", class: "danger", "aria-label": label, onclick }, text);
const ruleText = (one) => [one.effect, one.operation, one.resource, one.pattern === "any" ? "any" : `${one.pattern} ${one.name}`,
  `for ${one.principal === "*" ? "everybody" : one.principal}`, one.protocol === "*" ? "" : `by ${one.protocol}`,
  one.host === "*" ? "" : `from ${one.host}`, one.client === "*" ? "" : `client ${one.client}`].filter(Boolean).join(" ");

const ask = guarded(async () => {
  const value = (name) => byId(`ask-${name}`).value.trim();
  const asked = Object.fromEntries(["user", "operation", "resource", "name", "protocol", "host"].map((name) => [name, value(name)]));
  if (asked.resource === "cluster") asked.name = "kafka-cluster";
  const found = await api(`rules/explain${query(asked)}`);
  byId("answer").replaceChildren(
    h("p", {}, h("strong", {}, found.allowed ? "Yes" : "No"), `: ${found.reason}.`),
    ...(found.rules.length ? [plainTable("Rules about it", ["Rule", "Kept in"], found.rules.map((one) => [ruleText(one), one.source]))] : []));
});

const showUsers = guarded(async () => {
  const { users } = await api("users");
  byId("user-list").replaceChildren(plainTable("Users", ["Name", "Administrator", "Mechanisms", "Kept in", "Action"], users.map((one) => [
    one.name, one.administrator ? "yes" : "", one.mechanisms.join(", "), one.origin,
    one.origin === "store" ? button("Remove…", `Remove ${one.name}`, guarded(async () => {
      const text = `Removes ${one.name} with its access keys, and closes its connections. ${number(users.length - 1)} users stay; login stays required.`;
      if (!await confirmed({ title: `Remove user ${one.name}?`, text, action: "Remove", name: one.name })) return;
      await api(path("users", one.name), { method: "DELETE" });
      await showUsers();
    })) : "",
  ])));
});

const saveUser = guarded(async () => {
  const name = byId("user-name").value.trim();
  const { users } = await api("users");
  if (!users.length) {
    const text = `${name} becomes an administrator, and from now on everybody must log in, by every protocol. This page then asks for the password.`;
    if (!await confirmed({ title: "Add the first user?", text, action: "Add" })) return;
  }
  const body = { password: byId("user-password").value };
  if (byId("user-admin").checked) body.administrator = true;
  await api(path("users", name), { method: "PUT", body });
  byId("new-user").reset();
  say(`${name} is saved`);
  await showUsers();
});

const showKeys = guarded(async () => {
  const { keys } = await api("access-keys");
  byId("key-list").replaceChildren(plainTable("Access keys", ["Key", "User", "Kept in", "Action"], keys.map((one) => [
    h("code", {}, one.key_id), one.user, one.origin,
    one.origin === "store" ? button("Remove…", `Remove ${one.key_id}`, guarded(async () => {
      if (!await confirmed({ title: `Remove key ${one.key_id}?`, text: `Requests of ${one.user} that are signed with it are refused from now on.`, action: "Remove" })) return;
      await api(path("access-keys", one.key_id), { method: "DELETE" });
      await showKeys();
    })) : "",
  ])));
});

const makeKey = guarded(async () => {
  const made = await api(path("users", byId("key-user").value.trim(), "keys"), { method: "POST", body: {} });
  byId("secret").replaceChildren(h("p", {}, "The secret is shown once: "), h("pre", { tabindex: "0" }, `${made.key_id}\n${made.secret}`));
  await showKeys();
});

const showRules = guarded(async () => {
  const { rules } = await api("rules");
  byId("rule-list").replaceChildren(plainTable("Rules", ["Rule", "Kept in", "Action"], rules.map((one) => {
    const { source, ...words } = one;
    return [ruleText(one), source, source === "store" ? button("Remove…", `Remove ${ruleText(one)}`, guarded(async () => {
      if (!await confirmed({ title: "Remove the rule?", text: `${ruleText(one)}. What it allowed or denied is decided by the other rules, at once.`, action: "Remove" })) return;
      await api(`rules${query(words)}`, { method: "DELETE" });
      await showRules();
    })) : ""];
  })));
});

for (const [form, work] of [["ask", ask], ["new-user", saveUser], ["new-key", makeKey]]) {
  byId(form).addEventListener("submit", (event) => { event.preventDefault(); work(); });
}
const shows = { users: showUsers, keys: showKeys, rules: showRules };
tabs(document.querySelector("[role=tablist]"), (tab) => shows[tab]?.());
api("node").then((node) => { byId("facts").textContent = node.authentication_required ? "Login is required." : "Login is not required."; });
