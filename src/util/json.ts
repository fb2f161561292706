import { describe, HeadwiseError } from "./errors.ts";

/** The value of a JSON text, or `json` itself if it is an object already. */
export function parseJson(where: string, name: string, json: string | object): unknown {
  if (typeof json === "object" && json !== null && !ArrayBuffer.isView(json)) return json;
  if (typeof json !== "string")
    throw new TypeError(`${where}: ${name} expected JSON text or an object, got ${describe(json)}`);
  try {
    return JSON.parse(json);
  } catch (cause) {
    const hint = /^[^\s{["<]+$/.test(json) ? ": pass the text of the file, not its path" : "";
    const text = `${where}: ${name} expected valid JSON, got ${describe(json)}${hint}`;
    throw new HeadwiseError("BAD_FILE", text, { cause });
  }
}
