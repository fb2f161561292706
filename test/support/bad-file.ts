import { expect } from "vitest";
import { HeadwiseError } from "../../src/base/util/errors.ts";

/** The message of the BAD_FILE that `run` throws or rejects with. */
export async function badFileOf(run: () => unknown): Promise<string> {
  try {
    await run();
  } catch (error) {
    expect(error).toBeInstanceOf(HeadwiseError);
    expect((error as HeadwiseError).code).toBe("BAD_FILE");
    return (error as Error).message;
  }
  throw new Error("expected BAD_FILE, but the file was read");
}
