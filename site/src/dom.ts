// Elements by id, and elements that are made.

/** The element of an id, of the class that is expected: a page without it is wrong. */
export function byId<T extends Element = HTMLElement>(id: string, kind: { new (): T; readonly prototype: T }): T {
  const element = document.getElementById(id);
  if (element instanceof kind) return element;
  throw new Error(`the page expected a ${kind.name} with the id ${id}`);
}

/** Makes an element with these properties, and `children` in it. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  fields: Partial<Omit<HTMLElementTagNameMap[K], "style" | "dataset">> & {
    readonly dataset?: Readonly<Record<string, string>>;
  } = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[K] {
  const { dataset, ...rest } = fields;
  const made = document.createElement(tag);
  Object.assign(made.dataset, dataset);
  // Firefox has the properties of ARIA since version 119 only.
  for (const [name, value] of Object.entries(rest))
    if (/^aria[A-Z]|^role$/.test(name)) made.setAttribute(name.replace("aria", "aria-").toLowerCase(), String(value));
    else Reflect.set(made, name, value);
  made.append(...children);
  return made;
}

/** Shows a message in a line: quietly, or as an error, whose second line is for those who want it exactly. */
export function showMessage(line: HTMLElement, message: string, isError = false): void {
  const [first = "", ...exact] = message.split("\n");
  line.textContent = first;
  if (exact.length > 0) line.append(" ", make("small", { className: "exact", textContent: exact.join(" ") }));
  line.classList.toggle("error", isError);
  line.classList.toggle("quiet", !isError);
}

/** A name and its value, for a list `dl`. */
export function fact(name: string, value: HTMLElement | string): HTMLElement {
  const shown = typeof value === "string" ? make("dd", { textContent: value }) : value;
  return make("div", {}, make("dt", { textContent: name }), shown);
}

/** Runs `work` at most once a frame, with the last arguments that it was called with. */
export function oncePerFrame<A extends readonly unknown[]>(work: (...args: A) => void): (...args: A) => void {
  let last: A | undefined;
  return (...args) => {
    const waits = last !== undefined;
    last = args;
    if (waits) return;
    requestAnimationFrame(() => {
      const given = last as A;
      last = undefined;
      work(...given);
    });
  };
}

/** Milliseconds without a call. */
const PAUSE_MS = 250;

/** Runs `work` once nothing has asked for it for a while: what is too much for every key that is pressed. */
export function afterPause(work: () => void, ms = PAUSE_MS): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}
