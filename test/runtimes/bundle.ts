// One self-contained ES module of the suite and all it reads: `export function runSuite({ headwise, weights, load })`.
// For places without files, network or a module loader of their own. The package under test is not in it.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build, type Plugin } from "esbuild";

const here = import.meta.dirname;
const root = join(here, "..", "..");

/** What the checks read, by path from the root of the repository. */
function fixturePaths(): { readonly files: string[]; readonly texts: string[] } {
  const under = (folder: string) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1));
  return {
    files: [...under("test/vectors"), ...under("model")].filter((path) => path.endsWith(".safetensors")),
    texts: ["test/vectors/index.json", "model/config.json", "model/logits.json", "model/heldout.json"],
  };
}

/** Puts the fixtures in place of files, and what the host hands in in place of the package. */
const selfContained: Plugin = {
  name: "self-contained",
  setup({ onLoad, onResolve }) {
    const given = { path: join(here, "given.ts") };
    onResolve({ filter: /^headwise($|\/)/ }, () => given);
    // The entries of the package are given; other sources, such as the twins, are the suite's own means of comparison.
    onResolve({ filter: /\/src\/(?:entries\/(?:core|index|weights)|layers\/latent\/latents)\.ts$/ }, ({ kind }) =>
      kind === "import-statement" ? given : undefined,
    );
    onResolve({ filter: /^node:(fs|path|crypto)$/ }, ({ path }) => ({
      path: join(here, "shims", `${path.slice(5)}.ts`),
    }));
    onResolve({ filter: /^suite:fixtures$/ }, () => ({ path: "suite", namespace: "fixtures" }));
    onLoad({ filter: /./, namespace: "fixtures" }, () => {
      const { files, texts } = fixturePaths();
      const binary = files.map((path, i) => `import file${i} from ${JSON.stringify(join(root, path))};`);
      const named = files.map((path, i) => `${JSON.stringify(path)}: file${i}`);
      const contents = Object.fromEntries(texts.map((path) => [path, readFileSync(join(root, path), "utf8")]));
      return {
        contents: `${binary.join("\n")}\nexport const fixtures = { files: { ${named.join(", ")} }, texts: ${JSON.stringify(contents)} };`,
        loader: "js",
        resolveDir: root,
      };
    });
  },
};

/** The module's source. */
export async function bundleSuite(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [join(here, "selfcontained.ts")],
    bundle: true,
    write: false,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    // No other loader of binary data asks its host for anything.
    loader: { ".safetensors": "binary" },
    tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } },
    plugins: [selfContained],
  });
  return outputFiles[0]!.text;
}
