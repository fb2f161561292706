import { spawn, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Where PyTorch may be: that of Debian is seen by Debian's Python only. */
const CANDIDATES = [process.env.PYTHON, "python3", "/usr/bin/python3", "python"];

/** No Python with PyTorch: the message says what to do. */
export class NoPyTorch extends Error {
  constructor() {
    super(
      "The models are trained with PyTorch, which no Python here has. Install it (Debian: apt-get install python3-torch " +
        "libopenblas0-pthread; elsewhere: pip install torch), or name a Python that has it in the variable PYTHON. With --figures, " +
        "figures and text are made from the committed result without it.",
    );
  }
}

/**
 * Runs a program that needs PyTorch, on one thread. Reports its lines of output; its errors go to the terminal.
 * @param candidates Commands among which is one of a Python with PyTorch.
 * @throws NoPyTorch.
 */
export async function runPython(
  script: URL,
  args: readonly string[],
  report: (line: string) => void,
  candidates: readonly (string | undefined)[] = CANDIDATES,
): Promise<void> {
  const python = candidates.find((name) => name && spawnSync(name, ["-c", "import torch"]).status === 0);
  if (python === undefined) throw new NoPyTorch();
  // OpenBLAS does not heed torch.set_num_threads, and sums of more threads have other last bits. -B: no caches beside the sources.
  const env = { ...process.env, OPENBLAS_NUM_THREADS: "1", OMP_NUM_THREADS: "1" };
  const child = spawn(python, ["-u", "-B", fileURLToPath(script), ...args], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise<number | null>((resolve, reject) => child.on("error", reject).on("close", resolve));
  for await (const line of createInterface({ input: child.stdout })) report(line);
  const code = await ended;
  if (code !== 0) throw new Error(`${fileURLToPath(script)} ended with ${code}`);
}
