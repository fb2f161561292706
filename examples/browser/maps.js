// The attention maps: a small one of each head, and the chosen one with labels and a cursor.

/** 256 colours from black over violet and orange to pale yellow, four bytes each; the legend in maps.css has them too. */
const COLOURS = Uint8ClampedArray.from({ length: 4 * 256 }, (_, i) => {
  const stops = [[8, 8, 16, 255], [84, 24, 110, 255], [186, 54, 85, 255], [249, 142, 9, 255], [252, 255, 190, 255]];
  const at = ((i >> 2) / 256) * (stops.length - 1);
  const [from, to] = [stops[Math.floor(at)][i % 4], stops[Math.floor(at) + 1][i % 4]];
  return from + (at % 1) * (to - from);
});

/** Pixels that a label needs: in a row the width of a character, in a column its height. */
const LABEL_PIXELS = { keys: 8, queries: 11 };
const [SMALLEST, LARGEST] = [10, 14];

const ids = ["maps", "heads", "keys", "queries", "plot", "large", "cursor", "head", "scores", "cell"];
const [section, heads, keys, queries, plot, large, cursor, head, scores, cell] = ids.map((id) => document.getElementById(id));
const axes = { keys, queries };

/** The maps that are shown, the text they belong to, the chosen one of them, and the cell under the cursor. */
let all = [];
let text = "";
let chosen = 0;
let at;

/** Shows the maps [numHeads, n, n] of each layer for a text of n characters. */
export function showMaps(layers, whole) {
  text = whole;
  all = layers.flatMap(({ data, shape: [numHeads, n] }, l) =>
    Array.from({ length: numHeads }, (_, h) => describeMap(`layer ${l} head ${h}`, data.subarray(h * n * n, (h + 1) * n * n))),
  );
  chosen = Math.min(chosen, all.length - 1);
  heads.replaceChildren(...all.map(buttonOf));
  for (const axis of Object.values(axes)) axis.replaceChildren(...[...whole].map(labelOf));
  section.hidden = false;
  choose(chosen);
}

/** Takes away all that belongs to an earlier text. */
export function clearMaps() {
  section.hidden = true;
  all = [];
  at = undefined;
  for (const each of [heads, keys, queries, head, scores, cell]) each.replaceChildren();
  large.width = large.height = 0;
}

/** Mean weights: of the previous character, and of those that followed earlier occurrences of the current one. */
function describeMap(name, weights) {
  const n = text.length;
  let [previous, induction, repeated] = [0, 0, 0];
  for (let t = 1; t < n; t++) {
    previous += weights[t * n + t - 1];
    if (text.indexOf(text[t]) < t) repeated++;
    for (let j = 0; j < t - 1; j++) if (text[j] === text[t]) induction += weights[t * n + j + 1];
  }
  previous /= Math.max(1, n - 1);
  induction /= Math.max(1, repeated);
  return { name, weights, previous, induction, role: previous > 0.5 ? "previous token" : induction > 0.5 ? "induction" : "mixed" };
}

function draw(canvas, weights) {
  const n = text.length;
  canvas.width = canvas.height = n;
  const image = new ImageData(n, n);
  for (let i = 0; i < n * n; i++) {
    const colour = 4 * Math.min(255, Math.floor(weights[i] * 256));
    image.data.set(COLOURS.subarray(colour, colour + 4), 4 * i);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const make = (tag, fields, ...children) => {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
};

function buttonOf({ name, weights, role }, i) {
  const canvas = make("canvas");
  canvas.setAttribute("aria-hidden", "true");
  draw(canvas, weights);
  const button = make("button", { type: "button" }, canvas, make("b", { textContent: name }), make("span", { textContent: role }));
  button.addEventListener("click", () => choose(i));
  return button;
}

/** A space would be no label: it has a dot, which the model does not know as a character. */
const labelOf = (character) => make("span", { textContent: character === " " ? "·" : character });

function choose(i) {
  chosen = i;
  const { name, weights, role, previous, induction } = all[i];
  for (const [j, button] of [...heads.children].entries()) button.setAttribute("aria-pressed", String(i === j));
  draw(large, weights);
  head.textContent = `${name}: ${role}`;
  scores.textContent = `previous token ${previous.toFixed(2)}, induction ${induction.toFixed(2)}`;
  const last = text.length - 1;
  if (at === undefined || at.query > last || at.key > last) at = strongest(last);
  point(at.query, at.key);
}

/** The cell of a query's largest weight. */
function strongest(query) {
  const row = all[chosen].weights.subarray(query * text.length, (query + 1) * text.length);
  return { query, key: row.indexOf(row.reduce((a, b) => Math.max(a, b))) };
}

/** Moves the cursor to a cell and reads its weight. */
function point(query, key) {
  const n = text.length;
  const within = (i) => Math.min(n - 1, Math.max(0, i));
  at = { query: within(query), key: within(key) };
  const { name, weights } = all[chosen];
  const named = (i) => `${JSON.stringify(text[i])} at ${i}`;
  const looks = `${name}: ${named(at.query)} looks at ${named(at.key)} with ${weights[at.query * n + at.key].toFixed(3)}`;
  cell.textContent = at.key > at.query ? `${looks}, because that comes later` : looks;
  const percent = (i) => `${(100 * i) / n}%`;
  Object.assign(cursor.style, { left: percent(at.key), top: percent(at.query), width: percent(1), height: percent(1) });
  placeLabels();
}

/** Places the labels of both axes, as many as there is room for, and marks those of the cursor. */
function placeLabels() {
  const n = text.length;
  const pixels = plot.clientWidth / n;
  for (const [name, axis] of Object.entries(axes)) {
    const here = name === "keys" ? at.key : at.query;
    const step = Math.max(1, Math.ceil(LABEL_PIXELS[name] / pixels));
    axis.style.fontSize = `${Math.min(LARGEST, Math.max(SMALLEST, pixels))}px`;
    for (const [i, label] of [...axis.children].entries()) {
      label.style[name === "keys" ? "left" : "top"] = `${(100 * (i + 0.5)) / n}%`;
      label.className = i === here ? "here" : "";
      label.hidden = i % step !== 0 && i !== here;
    }
  }
}

new ResizeObserver(() => at && placeLabels()).observe(plot);

const pointAt = ({ clientX, clientY }) => {
  const { left, top, width, height } = plot.getBoundingClientRect();
  point(Math.floor(((clientY - top) / height) * text.length), Math.floor(((clientX - left) / width) * text.length));
};
plot.addEventListener("pointermove", pointAt);
plot.addEventListener("pointerdown", pointAt);

/** Where each key moves the cursor: Home to the first character, End to the last that the query may look at. */
const MOVES = {
  ArrowLeft: ({ query, key }) => [query, key - 1],
  ArrowRight: ({ query, key }) => [query, key + 1],
  ArrowUp: ({ query, key }) => [query - 1, key],
  ArrowDown: ({ query, key }) => [query + 1, key],
  Home: ({ query }) => [query, 0],
  End: ({ query }) => [query, query],
};
plot.addEventListener("keydown", (event) => {
  if (!Object.hasOwn(MOVES, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault(); // the page would scroll
  point(...MOVES[event.key](at));
});
