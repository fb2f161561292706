// What an example of the documents imports first: what it prints goes to the page.

const show = (value: unknown): string => {
  if (typeof value === "string") return value;
  if (ArrayBuffer.isView(value)) return `${value.constructor.name} [ ${Array.from(value as Float32Array).join(", ")} ]`;
  if (Array.isArray(value)) return `[ ${value.map(show).join(", ")} ]`;
  return value && typeof value === "object" ? JSON.stringify(value) : String(value);
};

console.log = (...values: unknown[]) => postMessage({ line: values.map(show).join(" ") });
addEventListener("unhandledrejection", ({ reason }) => postMessage({ error: String(reason) }));

/** The example has come to its end. */
export function finish(): void {
  postMessage({ done: true });
}
