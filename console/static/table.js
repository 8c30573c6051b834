// A table whose rows come from the node in pages, sorted there.

import { api, guarded, h, number, query } from "./core.js";

const PAGE_ROWS = 50;

/**
 * `columns`: [{name, title, cell(row) -> text or element, number, sorts}].
 * `url(values)`: path below /v1/ for {limit, offset, sort, contains}; `rows(answer)`: its rows.
 * `filter`: placeholder of the text filter, if there is one. Sort and filter are in the page's URL;
 * `prefix` tells the tables of one page apart there.
 */
export class PagedTable {
  constructor(root, { caption, columns, url, rows, filter = "", sort = "", prefix = "", empty = "Nothing here." }) {
    Object.assign(this, { root, caption, columns, url, rowsOf: rows, prefix, empty });
    const given = new URLSearchParams(location.search);
    this.sort = given.get(`${prefix}sort`) ?? sort;
    this.contains = filter ? given.get(`${prefix}contains`) ?? "" : "";
    this.offset = 0;
    this.head = h("tr");
    this.body = h("tbody");
    this.place = h("span", { class: "quiet", "aria-live": "polite" });
    this.back = h("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.forth = h("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.table = h("table", {}, h("caption", { class: "visually-hidden" }, caption), h("thead", {}, this.head), this.body);
    const bar = h("div", { class: "row" });
    if (filter) bar.append(this.filterInput(filter));
    bar.append(this.back, this.forth, this.place);
    root.replaceChildren(bar, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table));
  }

  filterInput(placeholder) {
    const input = h("input", { type: "search", value: this.contains, placeholder, "aria-label": `${this.caption}: name contains` });
    let timer = null;
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => { this.contains = input.value; this.offset = 0; this.remember(); this.load(); }, 250);
    });
    return input;
  }

  remember() {
    const kept = { ...Object.fromEntries(new URLSearchParams(location.search)), [`${this.prefix}sort`]: this.sort, [`${this.prefix}contains`]: this.contains };
    history.replaceState(null, "", `${location.pathname}${query(kept)}${location.hash}`);
  }

  turn(step) {
    this.offset = Math.max(0, this.offset + step * PAGE_ROWS);
    this.load();
  }

  sortBy(name) {
    this.sort = this.sort === name ? `-${name}` : name;
    this.offset = 0;
    this.remember();
    this.load();
  }

  load = guarded(async () => {
    const asked = { limit: PAGE_ROWS, offset: this.offset, sort: this.sort, contains: this.contains };
    this.latest = asked;
    const answer = await api(this.url(asked));
    if (this.latest === asked) this.show(this.rowsOf(answer), answer.total);
  });

  show(rows, total) {
    this.head.replaceChildren(...this.columns.map((column) => this.headCell(column)));
    this.body.replaceChildren(...rows.map((row) => h("tr", {}, this.columns.map((column) => {
      const cell = column.cell(row);
      return h(column === this.columns[0] ? "th" : "td", { class: column.number ? "number" : null, scope: column === this.columns[0] ? "row" : null }, cell);
    }))));
    if (!rows.length) {
      this.body.replaceChildren(h("tr", {}, h("td", { colspan: this.columns.length, class: "quiet" }, this.empty)));
    }
    const end = this.offset + rows.length;
    this.place.textContent = total ? `${number(this.offset + 1)} to ${number(end)} of ${number(total)}` : "";
    this.back.disabled = this.offset === 0;
    this.forth.disabled = end >= total;
  }

  headCell(column) {
    const direction = { [column.name]: "ascending", [`-${column.name}`]: "descending" }[this.sort];
    const title = column.sorts
      ? h("button", { type: "button", onclick: () => this.sortBy(column.name) }, column.title, { ascending: " ▲", descending: " ▼" }[direction] ?? "")
      : column.title;
    return h("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": direction }, title);
  }
}

/** Return a small table that is there at once. */
export function plainTable(caption, titles, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}
