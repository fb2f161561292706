// Whether users' compilers take the declarations: old and new ones, of Node and of bundlers, with nothing skipped.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../children.ts";
import { type Project, versionOf } from "../project.ts";

const COMPILERS = ["typescript55", "typescript60", "typescript70"];
const RESOLUTIONS = { nodenext: "nodenext", bundler: "esnext" };
/** What programs are compiled with: none names `esnext.disposable`, and not all know the globals of a host. */
const PLACES = {
  page: { lib: ["es2022", "dom"], types: [], files: ["consumer.ts"] },
  oldPage: { lib: ["es2020", "dom"], types: [], files: ["consumer.ts"] },
  worker: { lib: ["es2022", "webworker"], types: [], files: ["consumer.ts"] },
  node: { lib: ["es2022"], types: ["node"], files: ["consumer.ts"] },
  bare: { lib: ["es2022"], types: [], files: ["bare.ts"] },
};

/**
 * Compiles project/consumer.ts, or bare.ts, and with it wrong.ts and optional.ts every way. Returns what they were compiled under;
 * throws what does not.
 */
export async function checkTypes(project: Project): Promise<string> {
  const { folder } = project;
  const wrong: string[] = [];
  const compilers = COMPILERS.map((name) => versionOf(project, name));
  for (const [place, { files, ...settings }] of Object.entries(PLACES))
    for (const [moduleResolution, module] of Object.entries(RESOLUTIONS)) {
      const compilerOptions = {
        ...{ target: "es2022", module, moduleResolution, ...settings, noEmit: true, skipLibCheck: false },
        ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true },
        ...{ verbatimModuleSyntax: true, isolatedModules: true },
      };
      const name = `tsconfig.${place}.${moduleResolution}.json`;
      writeFileSync(
        join(folder, name),
        JSON.stringify({ compilerOptions, files: [...files, "wrong.ts", "optional.ts"] }),
      );
      for (const [i, compiler] of COMPILERS.entries()) {
        const args = [join("node_modules", compiler, "bin", "tsc"), "-p", name, "--pretty", "false"];
        await run(process.execPath, args, { folder, limit: 120 }).catch((error: Error) =>
          wrong.push(`TypeScript ${compilers[i]}, ${place}, ${moduleResolution}: ${error.message}`),
        );
      }
    }
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  const [places, resolutions] = [PLACES, RESOLUTIONS].map((each) => Object.keys(each).join(" and "));
  return `TypeScript ${compilers.join(", ")} x ${resolutions} x ${places}`;
}
