import { spawn, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Where PyTorch may be: that of Debian is seen by Debian's Python only. */
const CANDIDATES = [process.env.PYTHON, "python3", "/usr/bin/python3", "python"];

/** Runs a program that needs PyTorch. Reports its lines of output; its errors go to the terminal. */
export async function runPython(script: URL, args: readonly string[], report: (line: string) => void): Promise<void> {
  const python = CANDIDATES.find((name) => name && spawnSync(name, ["-c", "import torch"]).status === 0);
  if (python === undefined)
    throw new Error(
      "The models are trained with PyTorch, which no Python was found to have. Install it (Debian: apt-get install python3-torch " +
        "libopenblas0-pthread; elsewhere: pip install torch), or name an interpreter that has it in PYTHON. --figures needs none.",
    );
  const child = spawn(python, ["-u", fileURLToPath(script), ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve, reject) => child.on("error", reject).on("close", resolve));
  for await (const line of createInterface({ input: child.stdout })) report(line);
  const code = await ended;
  if (code !== 0) throw new Error(`${fileURLToPath(script)} ended with ${code}`);
}
