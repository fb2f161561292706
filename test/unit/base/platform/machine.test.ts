import { join } from "node:path";
import { expect, test } from "vitest";
import { cacheFolder, environmentOf, machineMemory } from "../../../../src/base/platform/host.ts";

const os = { totalmem: () => 8e9, homedir: () => "/home/a" };
const hostWith = (modules: Readonly<Record<string, object>>, more: object = {}) => ({
  process: { getBuiltinModule: (name: string) => modules[name], ...more },
});
const forbidden = {
  get env(): never {
    throw new Error("NotCapable");
  },
  availableMemory(): never {
    throw new Error("NotCapable");
  },
  getBuiltinModule: (name: string) =>
    name === "node:os" && {
      homedir() {
        throw new Error("NotCapable");
      },
      totalmem() {
        throw new Error("NotCapable");
      },
    },
};

test("an environment variable is undefined where it is empty, not there, or may not be read", () => {
  const process = { env: { SET: "1", EMPTY: "" } };
  expect(["SET", "EMPTY", "NONE"].map((name) => environmentOf(name, { process }))).toEqual(["1", undefined, undefined]);
  expect(environmentOf("SET", {})).toBeUndefined();
  expect(environmentOf("SET", { process: forbidden })).toBeUndefined();
  const denoWith = (state: string) => ({ process, Deno: { permissions: { querySync: () => ({ state }) } } });
  expect(environmentOf("SET", denoWith("granted"))).toBe("1");
  // Reading would ask the user.
  expect(environmentOf("SET", denoWith("prompt"))).toBeUndefined();
});

test("memory is nine tenths of what is available, half of the machine's or of a device's, or unknown", () => {
  expect(machineMemory(hostWith({}, { availableMemory: () => 1e9 }))?.bytes).toBe(9e8);
  expect(machineMemory(hostWith({ "node:os": os }))?.bytes).toBe(4e9);
  expect(machineMemory({ navigator: { deviceMemory: 4 } })?.bytes).toBe(2 ** 31);
  expect(machineMemory({})).toBeUndefined();
  expect(machineMemory({ process: forbidden })).toBeUndefined();
  expect(machineMemory()?.bytes).toBeGreaterThan(1e8);
});

test("the folder of caches is that of the user, and undefined on hosts without files or without leave", () => {
  const modules = { "node:os": os, "node:fs/promises": {} };
  expect(cacheFolder(hostWith(modules, { platform: "linux", env: { XDG_CACHE_HOME: "/caches" } }))).toBe(
    join("/caches", "headwise"),
  );
  expect(cacheFolder(hostWith(modules, { platform: "darwin" }))).toBe(join("/home/a", "Library", "Caches", "headwise"));
  expect(cacheFolder(hostWith({ "node:os": os }))).toBeUndefined();
  expect(cacheFolder({ process: forbidden })).toBeUndefined();
  expect(cacheFolder({})).toBeUndefined();
});
