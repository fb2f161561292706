// What a model needs to know of the machine: environment variables, memory, and where a user's caches are.

import { builtinModule } from "./host.ts";

interface MachineScope {
  readonly process?: {
    readonly env?: Readonly<Record<string, string | undefined>>;
    readonly platform?: string;
    availableMemory?(): number;
    getBuiltinModule?(name: string): unknown;
  };
  readonly navigator?: { readonly deviceMemory?: number };
  readonly Deno?: { readonly permissions: { querySync(asked: Permission): { readonly state: string } } };
}

/** What Deno permits, by its names. */
type Permission =
  | { readonly name: "env"; readonly variable: string }
  | { readonly name: "sys"; readonly kind: "homedir" | "systemMemoryInfo" };

/** An environment variable; undefined where it is not set, is empty, may not be read, or the host has none. */
export function environmentOf(name: string, scope: MachineScope = globalThis as MachineScope): string | undefined {
  return permitted(scope, { name: "env", variable: name }, () => scope.process?.env?.[name] || undefined);
}

/** What `read` gives; undefined if the host does not permit it, as Deno without its permissions, for which its user is not asked. */
function permitted<T>({ Deno }: MachineScope, asked: Permission, read: () => T): T | undefined {
  try {
    return (Deno?.permissions.querySync(asked).state ?? "granted") === "granted" ? read() : undefined;
  } catch {
    return undefined;
  }
}

/** The bytes that a program may take, and how that is known. */
export interface MachineMemory {
  readonly bytes: number;
  readonly reason: string;
}

interface System {
  totalmem(): number;
  homedir(): string;
}

const MEMORY: Permission = { name: "sys", kind: "systemMemoryInfo" };

/** What is left for other programs, and for what JavaScript itself needs. */
const SHARE = 0.9;

/** The memory of this machine; undefined where the host does not say it. */
export function machineMemory(scope: MachineScope = globalThis as MachineScope): MachineMemory | undefined {
  const available = permitted(scope, MEMORY, () => scope.process?.availableMemory?.());
  if (available)
    return { bytes: Math.floor(SHARE * available), reason: "nine tenths of what the system has available" };
  const total = permitted(scope, MEMORY, () => builtinModule<System>("node:os", scope)?.totalmem?.());
  if (total) return { bytes: Math.floor(total / 2), reason: "half of the memory of the machine" };
  const { deviceMemory } = scope.navigator ?? {};
  if (!deviceMemory) return undefined;
  return { bytes: Math.floor((deviceMemory * 2 ** 30) / 2), reason: "half of what the browser says the device has" };
}

interface Paths {
  join(...parts: readonly string[]): string;
  isAbsolute(path: string): boolean;
}

/** The folder of headwise among the caches of a user, by the conventions of the system; undefined on hosts without files. */
export function cacheFolder(scope: MachineScope = globalThis as MachineScope): string | undefined {
  const asked: Permission = { name: "sys", kind: "homedir" };
  const home = permitted(scope, asked, () => builtinModule<System>("node:os", scope)?.homedir?.());
  if (!home || !builtinModule("node:fs/promises", scope)) return undefined;
  const names = ["LOCALAPPDATA", "XDG_CACHE_HOME"];
  const env = Object.fromEntries(names.map((name) => [name, environmentOf(name, scope)]));
  return storeFolder(env, scope.process?.platform ?? "", home);
}

/** `cacheFolder` of a home folder on a platform. */
export function storeFolder(env: Readonly<Record<string, string | undefined>>, platform: string, home: string): string {
  const { join, isAbsolute } = builtinModule<Paths>("node:path") as Paths;
  const { LOCALAPPDATA, XDG_CACHE_HOME = "" } = env;
  if (platform === "win32") return join(LOCALAPPDATA || join(home, "AppData", "Local"), "headwise");
  if (platform === "darwin") return join(home, "Library", "Caches", "headwise");
  // The XDG Base Directory Specification says to ignore a relative path.
  return join(isAbsolute(XDG_CACHE_HOME) ? XDG_CACHE_HOME : join(home, ".cache"), "headwise");
}
