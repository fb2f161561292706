interface WithProcess {
  readonly process?: { getBuiltinModule?(name: string): unknown };
}

/** A built-in module of Node, which Deno and Bun have too; undefined on other hosts. */
export function builtinModule<Module>(
  name: string,
  scope: WithProcess = globalThis as WithProcess,
): Module | undefined {
  return scope.process?.getBuiltinModule?.(name) as Module | undefined;
}
