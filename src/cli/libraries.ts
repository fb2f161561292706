// The optional packages of `headwise/text`, for commands that need them.

import { createRequire } from "node:module";
import { join } from "node:path";

/**
 * What `find` finds beside headwise, or else in the current directory: npx keeps headwise in a folder of its own, where nobody
 * installs anything.
 */
export async function findLibrary<Library extends object>(
  command: string,
  name: string,
  find: (where: string, given: Library | undefined) => Promise<Library>,
): Promise<Library> {
  try {
    return await find(command, undefined);
  } catch (error) {
    if (Object(error).code !== "NO_LIBRARY") throw error;
  }
  const folder = process.cwd();
  let found: Library;
  try {
    found = createRequire(join(folder, "package.json"))(name) as Library;
  } catch (cause) {
    const text = `${command}: text expected the package ${name}, got none in ${folder}: run npm install ${name} there`;
    throw new Error(text, { cause });
  }
  return find(command, found);
}
