import { registerHooks } from "node:module";

/** Modules are made once for each URL. */
let imports = 0;

/** Imports a module anew while `replaced`, which it imports, exports `exports` in place of its own. Both are file URLs. */
export async function importWith<T>(
  module: URL,
  replaced: URL,
  exports: Readonly<Record<string, unknown>>,
): Promise<T> {
  const key = `exports of ${replaced}`;
  const lines = Object.keys(exports).map((name) => `export const ${name} = globalThis["${key}"].${name};`);
  const anew = `?${++imports}`;
  const text = `export * from "${replaced}";\n${lines.join("\n")}\n//${anew}`;
  const url = `data:text/javascript,${encodeURIComponent(text)}`;
  const hooks = registerHooks({
    resolve(specifier, context, next) {
      const resolved = next(specifier, context);
      return resolved.url === replaced.href && context.parentURL !== url ? { url, shortCircuit: true } : resolved;
    },
  });
  Object.assign(globalThis, { [key]: exports });
  try {
    return (await import(`${module.href}${anew}`)) as T;
  } finally {
    hooks.deregister();
    Reflect.deleteProperty(globalThis, key);
  }
}
