import { HeadwiseError } from "../../base/util/errors.ts";

/**
 * Runs the checks of `createAttention` or `createLatentAttention` on a configuration from a file. An error names what the file
 * calls the field: `nameOf` gives that for the name of ours, if there is one.
 */
export function checkFileConfig(where: string, check: () => void, nameOf: (ours: string) => string | undefined): void {
  try {
    check();
  } catch (cause) {
    const { message } = cause as Error;
    const [, ours = "", rest = ""] = /^\w+: (.+?)( expected .*)$/s.exec(message) ?? [];
    const theirs = nameOf(ours);
    const name = theirs === undefined ? ours : `${theirs} (${ours})`;
    throw new HeadwiseError("BAD_FILE", `${where}: ${name}${rest}`, { cause });
  }
}
