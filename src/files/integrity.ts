// SHA-256 of files, as those who publish them state it: computed while a file is read, and compared once all of it was.

import { hostHasher, hostSha256 } from "../base/platform/host.ts";
import { decodeBase64, toHex } from "../base/util/bytes.ts";
import { describe, HeadwiseError, tagOf } from "../base/util/errors.ts";
import { type ByteSource, toSource } from "./byte-source.ts";
import type { FindFile } from "./model-folder.ts";
import { type AheadSource, type HeldPieces, readAhead } from "./read-ahead.ts";
import { PIECE } from "./store.ts";

/** The digest of the only file, or digests by the names of files. */
export type Integrity = string | Readonly<Record<string, string>>;

/** Pieces that came before one that lies in front of them, and wait for it: 32 MiB. Others are read again in the end. */
const MOST_EARLY = 8;

/** Digests as hex. Throws unless each has one of the forms. */
function readDigests(where: string, integrity: Integrity): string | ReadonlyMap<string, string> {
  const digestOf = (name: string, text: unknown): string => {
    const given = typeof text === "string" ? text : "";
    const hex = /^(?:sha256:)?([0-9a-f]{64})$/i.exec(given)?.[1];
    if (hex) return hex.toLowerCase();
    const base64 = /^sha256-([\w+/]{43}=)$/.exec(given)?.[1];
    if (base64) return toHex(decodeBase64(base64));
    const rule = 'a SHA-256, as 64 hex digits or as "sha256-" and base64';
    const wrong = typeof text === "string" ? RangeError : TypeError;
    throw new wrong(`${where}: ${name} expected ${rule}, got ${describe(text)}`);
  };
  if (tagOf(integrity) !== "Object") return digestOf("options.integrity", integrity);
  const names = Object.entries(integrity);
  return new Map(names.map(([name, text]) => [name, digestOf(`options.integrity[${describe(name)}]`, text)]));
}

/** A file whose digest is computed as it is read. */
interface CheckedFile {
  readonly name: string;
  /** Reads what was not read yet, and compares the digest. */
  finish(): Promise<void>;
}

/** The files of a load whose digests are stated. */
export class FileChecks {
  readonly #where: string;
  readonly #digests: string | ReadonlyMap<string, string>;
  readonly #files: CheckedFile[] = [];
  /** Removes from a store what was kept of a file. */
  readonly #forgets = new Map<string, () => Promise<void>>();
  #mismatch: HeadwiseError | undefined;
  /** Whether what failed is not for a digest to explain: a read, or the option. */
  #isExplained = false;

  constructor(where: string, integrity: Integrity) {
    this.#where = where;
    this.#digests = readDigests(where, integrity);
  }

  /** What is called if a file turns out to be another one. */
  onMismatch(name: string, forget: () => Promise<void>): void {
    this.#forgets.set(name, forget);
  }

  /** A source of the same bytes, whose digest is computed. */
  #follow(name: string, source: ByteSource, held: HeldPieces): ByteSource {
    const want = this.#digestOf(name);
    const hash = hostHasher();
    let next = 0;
    const early = new Map<number, Uint8Array>();
    /** Of all pieces that were read: a piece that is read again must be the same. */
    const digests = new Map<number, string>();
    const see = async (index: number, bytes: Uint8Array): Promise<void> => {
      const digest = toHex(await hostSha256(bytes as Uint8Array<ArrayBuffer>));
      const known = digests.get(index) ?? digest;
      if (known !== digest) throw await this.#refuse(name, "to stay as it was while it was read", "other bytes");
      digests.set(index, digest);
      if (index < next) return;
      early.set(index, bytes);
      for (let due = early.get(next); due !== undefined; due = early.get(next)) {
        hash.update(due);
        early.delete(next++);
      }
      if (early.size > MOST_EARLY) early.delete(Math.max(...early.keys()));
    };
    const failing: ByteSource = {
      ...source,
      read: (...range) =>
        source.read(...range).catch((error) => {
          this.#isExplained = true;
          throw error;
        }),
    };
    const ahead: AheadSource = readAhead(this.#where, failing, held, see);
    const finish = async () => {
      ahead.rewind();
      held.ahead = true;
      while (next * PIECE < source.size) {
        const [index, begin] = [next, next * PIECE];
        const bytes = await ahead.read(begin, Math.min(PIECE, source.size - begin));
        // Unlike one that was read just now, a piece that was held all along may have lost its place in `early`.
        if (next === index) await see(index, bytes);
      }
      const got = toHex(hash.digest());
      if (got !== want) throw await this.#refuse(name, `SHA-256 ${want} (options.integrity)`, got);
    };
    this.#files.push({ name, finish });
    return { ...source, read: ahead.read };
  }

  /** Finds files whose digests are computed. */
  following(find: FindFile, held: HeldPieces): FindFile {
    return async (name, optional) => {
      const found = await find(name, optional);
      return found && this.#follow(name, toSource(this.#where, found), held);
    };
  }

  /**
   * Throws unless all files that were opened have their digests; what was not read of them is read. After a failure, throws only if
   * a file is another one than stated, which explains it.
   */
  async verify(failure?: unknown): Promise<void> {
    const finishAll = async () => {
      for (const { finish } of this.#files.splice(0)) await finish();
    };
    if (failure === undefined) return finishAll();
    const isOfFiles = failure instanceof HeadwiseError && failure.code === "BAD_FILE";
    if (isOfFiles && !this.#isExplained) await finishAll().catch(() => {});
    if (this.#mismatch) throw this.#mismatch;
  }

  #digestOf(name: string): string {
    const digests = this.#digests;
    const isOther = this.#files.some((file) => file.name !== name);
    const found = typeof digests !== "string" ? digests.get(name) : isOther ? undefined : digests;
    if (found !== undefined) return found;
    this.#isExplained = true;
    const [rule, got] =
      typeof digests === "string"
        ? ["digests by the names of files, as several are read", "a single one"]
        : [`one of file ${describe(name)} too`, "none"];
    throw new RangeError(`${this.#where}: options.integrity expected ${rule}, got ${got}`);
  }

  async #refuse(name: string, rule: string, got: string): Promise<HeadwiseError> {
    await this.#forgets.get(name)?.();
    this.#mismatch = new HeadwiseError(
      "BAD_FILE",
      `${this.#where}: file ${describe(name)} expected ${rule}, got ${got}`,
    );
    return this.#mismatch;
  }
}
