// The state of a page in the fragment of its address, so that every view is a link: browsers send no fragment to a host, and
// redirects keep it. A page names its fields once: their kinds say how they are read and written. A field with its first value is
// left out of the address; what cannot be read has its first value.

/** How a field is written in the address. */
export interface Field<T> {
  readonly first: T;
  read(text: string): T | undefined;
  write(value: T): string;
}

export const text = (first: string): Field<string> => ({ first, read: (given) => given, write: (value) => value });

export const flag = (first = false): Field<boolean> => ({
  first,
  read: (given) => (given === "1" ? true : given === "0" ? false : undefined),
  write: (value) => (value ? "1" : "0"),
});

export const number = (
  first: number,
  least = Number.NEGATIVE_INFINITY,
  most = Number.POSITIVE_INFINITY,
): Field<number> => ({
  first,
  read: (given) => {
    const value = given.trim() === "" ? Number.NaN : Number(given);
    return value >= least && value <= most ? value : undefined;
  },
  write: String,
});

export const integer = (first: number, least = 0, most: number = Number.MAX_SAFE_INTEGER): Field<number> => {
  const field = number(first, least, most);
  const read = (given: string) => {
    const value = field.read(given);
    return Number.isInteger(value) ? value : undefined;
  };
  return { ...field, read };
};

export const choice = <T extends string>(first: T, ...others: readonly T[]): Field<T> => ({
  first,
  read: (given) => [first, ...others].find((each) => each === given),
  write: (value) => value,
});

/** Milliseconds between two changes of the address. Browsers throw at more than some hundred in half a minute. */
const ADDRESS_MS = 350;

export interface State<V> {
  readonly values: Readonly<V>;
  /** Changes fields and calls all listeners; the address follows at once or, where much changes, a little later. */
  set(change: Partial<V>): void;
  /** Calls `listener` now and after each change. */
  follow(listener: (values: Readonly<V>) => void): void;
}

/** The state of the page whose address is `location`. */
export function createState<V extends object>(fields: { readonly [K in keyof V]: Field<V[K]> }): State<V> {
  const list = Object.entries(fields) as [keyof V & string, Field<V[keyof V]>][];
  const read = (): V => {
    const given = new URLSearchParams(location.hash.slice(1));
    const readField = (name: string, field: Field<V[keyof V]>) => {
      const found = given.get(name);
      return (found === null ? undefined : field.read(found)) ?? field.first;
    };
    return Object.fromEntries(list.map(([name, field]) => [name, readField(name, field)])) as V;
  };
  let values = read();
  const listeners: ((values: Readonly<V>) => void)[] = [];
  const notify = () => {
    for (const listener of listeners) listener(values);
  };
  let [written, timer, isLeft] = [Number.NEGATIVE_INFINITY, 0, false];
  const write = () => {
    if (isLeft) return;
    clearTimeout(timer);
    timer = 0;
    written = performance.now();
    const given = new URLSearchParams();
    for (const [name, field] of list) if (values[name] !== field.first) given.set(name, field.write(values[name]));
    const fields = String(given);
    history.replaceState(null, "", fields ? `#${fields}` : location.pathname + location.search);
  };
  addEventListener("hashchange", () => {
    const next = read();
    if (list.every(([name]) => next[name] === values[name])) return; // to or from a heading
    clearTimeout(timer);
    timer = 0;
    // A link to another view, or the way back from one: what a page reads at its start, such as a model, is read anew.
    if (!document.querySelector(":target")) {
      isLeft = true;
      return location.reload();
    }
    values = next;
    notify();
  });
  addEventListener("pagehide", () => timer && write());
  return {
    get values() {
      return values;
    },
    set(change) {
      values = { ...values, ...change };
      const wait = written + ADDRESS_MS - performance.now();
      if (wait <= 0) write();
      else timer ||= window.setTimeout(write, wait);
      notify();
    },
    follow(listener) {
      listeners.push(listener);
      listener(values);
    },
  };
}
