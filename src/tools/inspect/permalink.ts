// Records as text for addresses: base64url of CBOR and of a checksum. It is not compressed: deflate saves nothing
// where ids or floats fill the text, a third of a list of edits that are alike, and is not at hand in every runtime without waiting.

import { decodeBase64, encodeBase64, fromHex, joinBytes, toHex } from "../../base/util/bytes.ts";
import { decodeCbor, encodeParts } from "../../base/util/cbor.ts";
import { describe } from "../../base/util/errors.ts";
import { sha256 } from "../../base/util/sha256.ts";
import { type AnyRecord, checkRecord, type InspectionRecord } from "./records.ts";

/** Characters of the longest text. */
const MOST_CHARACTERS = 2 ** 24;
/** Bytes of SHA-256 behind a record, by which text that was cut or mistyped is known. */
const CHECKSUM = 4;

/**
 * A record as text of letters, digits, "-" and "_", for the part of an address behind #. Floats keep their bits, at five
 * characters and a third each: a patch from another text is shorter by that text's ids (`patchSites`) than by captured rows.
 * @throws TypeError or RangeError naming the argument, also for a record of more than 2^24 characters.
 * @example
 * import { encodeRecord, type InspectionRecord } from "headwise/inspect";
 * const record: InspectionRecord = {
 *   ...{ version: 1, model: "0a".repeat(32), formats: "f32", kernels: { build: "simd", fused: false, stamp: 7 } },
 *   ...{ inspect: "forward", request: { ids: [3, 1, 4] }, results: "0b".repeat(32) },
 * };
 * console.log(encodeRecord(record).length); // 142
 */
export function encodeRecord(record: InspectionRecord): string {
  const where = "encodeRecord";
  const { version, model, formats, kernels, inspect, request, results } = checkRecord(where, "record", record);
  const { build, fused, stamp } = kernels;
  const list = [version, fromHex(model), formats, build, fused, stamp, inspect, request, fromHex(results)];
  const bytes = joinBytes([...encodeParts(where, "record", list)]);
  const text = encodeBase64(joinBytes([bytes, sha256(bytes).subarray(0, CHECKSUM)]));
  if (text.length > MOST_CHARACTERS)
    throw new RangeError(`${where}: record expected at most ${MOST_CHARACTERS} characters of text, got ${text.length}`);
  return asUrl(text);
}

/**
 * The record that `encodeRecord` made a text of. Nothing is run, and no more memory is taken than a small multiple of the text; what
 * the record asks for is checked by `replay`.
 * @throws TypeError or RangeError naming the argument, for any other text.
 * @example
 * import { decodeRecord } from "headwise/inspect";
 * try {
 *   decodeRecord("iAHYQFgg");
 * } catch (error) {
 *   console.log((error as Error).message); // decodeRecord: text expected what encodeRecord gives, got one that was cut or changed
 * }
 */
export function decodeRecord(text: string): AnyRecord {
  const where = "decodeRecord";
  const bytes = checkText(where, text);
  const [body, checksum] = [bytes.subarray(0, -CHECKSUM), bytes.subarray(-CHECKSUM)];
  if (
    sha256(body)
      .subarray(0, CHECKSUM)
      .some((byte, i) => byte !== checksum[i])
  )
    throw damaged(where);
  const list = decodeCbor(where, "text", body);
  if (!Array.isArray(list) || list.length !== FIELDS)
    throw new RangeError(`${where}: text expected a record of ${FIELDS} parts, got ${describe(list)}`);
  const [version, model, formats, build, fused, stamp, inspect, request, results] = list;
  const record = {
    ...{ version, model: hexOf(model), formats, kernels: { build, fused, stamp } },
    ...{ inspect, request, results: hexOf(results) },
  };
  return checkRecord(where, "record", record as InspectionRecord) as AnyRecord;
}

/** Parts of a record. */
const FIELDS = 9;

/** The digits of a digest; what is none stays as it is, to be refused by name. */
const hexOf = (value: unknown) => (value instanceof Uint8Array ? toHex(value) : value);

/** The bytes of a text, of which each has one text only. */
function checkText(where: string, text: string): Uint8Array {
  if (typeof text !== "string") throw new TypeError(`${where}: text expected a string, got ${describe(text)}`);
  if (text.length > MOST_CHARACTERS)
    throw new RangeError(`${where}: text expected at most ${MOST_CHARACTERS} characters, got ${text.length}`);
  if (text.includes("#"))
    throw new RangeError(`${where}: text expected the part of the link behind #, got ${describe(text)}`);
  if (!/^[\w-]*$/.test(text)) throw new RangeError(`${where}: text expected base64url, got ${describe(text)}`);
  // Of four characters, one alone has no byte.
  if (text.length % 4 === 1) throw damaged(where);
  const bytes = decodeBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  if (asUrl(encodeBase64(bytes)) !== text) throw damaged(where);
  return bytes;
}

const damaged = (where: string) =>
  new RangeError(`${where}: text expected what encodeRecord gives, got one that was cut or changed`);

const asUrl = (base64: string) => base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
