// Line charts in SVG, with the same numbers as a table for those who do not see them.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600, HEIGHT = 160, LEFT = 56, TOP = 12, BOTTOM = 140;
const STYLES = ["line-a", "line-b", "line-c", "line-d"];

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function html(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

/** A chart: `series` are [{name, value(sample)}], `format(value)` is the text of a value. */
export class Chart {
  constructor(root, { title, series, format }) {
    Object.assign(this, { title, series, format });
    this.picture = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    this.numbers = html("table");
    const figure = html("figure"), details = html("details");
    details.append(html("summary", "As a table"), this.numbers);
    figure.append(html("figcaption", title), this.picture, this.legend(), details);
    root.append(figure);
  }

  legend() {
    const list = html("ul", undefined, "legend");
    this.series.forEach(({ name }, at) => {
      const key = svg("svg", { viewBox: "0 0 32 8", "aria-hidden": "true" });
      key.append(svg("line", { x1: 0, x2: 32, y1: 4, y2: 4, class: STYLES[at] }));
      const one = html("li");
      one.append(key, ` ${name}`);
      list.append(one);
    });
    return list;
  }

  /** Draw samples that have `at_unix_ms`, over the last `spanMs`. */
  draw(samples, spanMs) {
    const rows = this.series.map(({ value }) => samples.map(value));
    const known = rows.flat().filter((value) => value !== null && Number.isFinite(value));
    const top = Math.max(1, ...known) * 1.05;
    const end = samples.at(-1)?.at_unix_ms ?? 0;
    const x = (at) => LEFT + (WIDTH - LEFT - 8) * (1 - (end - at) / spanMs);
    const y = (value) => BOTTOM - (BOTTOM - TOP) * (value / top);
    const shares = this.format(top / 2) === this.format(top) ? [0, 1] : [0, 0.5, 1];
    const parts = shares.flatMap((share) => [
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(top * share), y2: y(top * share) }),
      svg("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, this.format(top * share)),
    ]);
    rows.forEach((row, at) => {
      const points = row.flatMap((value, index) => (value === null ? [] : [`${x(samples[index].at_unix_ms).toFixed(1)},${y(value).toFixed(1)}`]));
      if (points.length) parts.push(svg("path", { class: STYLES[at], d: `M${points.join("L")}` }));
    });
    this.picture.replaceChildren(...parts);
    this.describe(rows);
  }

  describe(rows) {
    const text = (value) => (value === null || value === undefined ? "unknown" : this.format(value));
    const said = this.series.map(({ name }, at) => `${name} ${text(rows[at].at(-1))}`).join(", ");
    this.picture.setAttribute("aria-label", `${this.title}: ${said}`);
    const head = html("tr");
    for (const title of ["Series", "Now", "Lowest", "Highest"]) {
      const cell = html("th", title);
      cell.scope = "col";
      head.append(cell);
    }
    const lines = this.series.map(({ name }, at) => {
      const known = rows[at].filter((value) => value !== null);
      const line = html("tr"), first = html("th", name);
      first.scope = "row";
      const values = known.length ? [rows[at].at(-1), Math.min(...known), Math.max(...known)] : [null, null, null];
      line.append(first, ...values.map((value) => html("td", text(value), "number")));
      return line;
    });
    this.numbers.replaceChildren(head, ...lines);
  }
}
