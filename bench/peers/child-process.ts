// The code of a child process. It prints one line.

import type { Peer, Way } from "./peer.ts";
import { type Block, firstWork, largeWork } from "./works.ts";

/** The way with the name on the command line, or the first. */
function chosenWay(peer: Peer, work: Block): Way {
  const ways = peer.ways(work);
  if (typeof ways === "string") throw new Error(ways);
  return ways.find(({ name }) => name === process.argv[2]) ?? ways[0]!;
}

/** From loading to the first answer of a block of 16 tokens. Without a peer, only its inputs are made. */
export async function answerOnce(peer: Peer | undefined): Promise<void> {
  const work = firstWork.make();
  if (!peer) return console.log(work.x.length);
  await peer.load();
  const prepared = await chosenWay(peer, work).prepare();
  await prepared.run();
  console.log(prepared.output()[0]);
}

/** Bytes of all wasm memories after loading, and what a block of 2048 tokens adds. */
export async function growMemory(peer: Peer): Promise<void> {
  const memories = watchMemories();
  await peer.load();
  const total = () => [...memories].reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
  const before = total();
  const prepared = await chosenWay(peer, largeWork.make()).prepare();
  await prepared.run();
  console.log(JSON.stringify({ before, grown: total() - before }));
}

/** Collects every memory that is created from now on, by JavaScript or by a module that exports it. */
function watchMemories(): Set<WebAssembly.Memory> {
  const memories = new Set<WebAssembly.Memory>();
  const wasm = WebAssembly as unknown as Record<string, unknown>;
  const { Memory, Instance, instantiate } = WebAssembly;
  const collect = (exports: WebAssembly.Exports) => {
    for (const one of Object.values(exports)) if (one instanceof Memory) memories.add(one);
  };
  wasm.Memory = new Proxy(Memory, {
    construct(target, [descriptor]) {
      const memory = new target(descriptor as WebAssembly.MemoryDescriptor);
      memories.add(memory);
      return memory;
    },
  });
  wasm.Instance = new Proxy(Instance, {
    construct(target, [module, imports]) {
      const instance = new target(module as WebAssembly.Module, imports as WebAssembly.Imports);
      collect(instance.exports);
      return instance;
    },
  });
  wasm.instantiate = async (source: WebAssembly.Module, imports?: WebAssembly.Imports) => {
    const made = (await instantiate(source, imports)) as unknown as
      | WebAssembly.Instance
      | { readonly instance: WebAssembly.Instance };
    collect("instance" in made ? made.instance.exports : made.exports);
    return made;
  };
  return memories;
}
