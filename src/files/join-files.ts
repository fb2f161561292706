import type { TensorFile } from "./tensor-file.ts";

/** Reads tensors of several files as those of one. */
export function joinFiles<Value>(
  owners: ReadonlyMap<string, string>,
  files: ReadonlyMap<string, TensorFile<Value>>,
): Pick<TensorFile<Value>, "readAll" | "readRows"> {
  const fileOf = (name: string) => files.get(owners.get(name) as string) as TensorFile<Value>;
  return {
    readRows: (name, ...rows) => fileOf(name).readRows(name, ...rows),
    async readAll(names, where) {
      const wanted = new Map<string, string[]>();
      for (const name of names) {
        const owner = owners.get(name) as string;
        const own = wanted.get(owner);
        if (own) own.push(name);
        else wanted.set(owner, [name]);
      }
      const read = Array.from(wanted, ([owner, own]) => files.get(owner)?.readAll(own, where));
      return new Map((await Promise.all(read)).flatMap((tensors) => [...(tensors ?? [])]));
    },
  };
}
