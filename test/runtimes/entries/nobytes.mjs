// Counts how often wasm is compiled from bytes, for hosts that hand out modules and refuse to compile.

const original = WebAssembly.compile;
let count = 0;

for (const name of ["compile", "instantiate", "Module"])
  WebAssembly[name] = new Proxy(WebAssembly[name], {
    apply(target, self, args) {
      if (!(args[0] instanceof WebAssembly.Module)) count++;
      return Reflect.apply(target, self, args);
    },
    construct(target, args, newTarget) {
      count++;
      return Reflect.construct(target, args, newTarget);
    },
  });

/** How often so far. */
export const compiled = () => count;

/** What the host says to the smallest module there is, in bytes. */
export async function compileBytes() {
  try {
    await original.call(WebAssembly, Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0));
    return "nothing";
  } catch (error) {
    return String(error);
  }
}
