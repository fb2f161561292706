// Sends 20 requests at once and then each of them alone, and compares the answers: node client.ts [url of the server]

const server = process.argv[2] ?? "http://127.0.0.1:8000/";

interface Health {
  readonly build: string;
  readonly threads: { readonly used: number; readonly reason: string };
  readonly largest: number;
}

/** Beginnings of a story, and different numbers of tokens. */
const words =
  "anna put the apple in the box . tom moved the apple to the bag . where was the apple ? in the bag .".split(" ");
const jobs = Array.from({ length: 20 }, (_, i) => ({
  prompt: words.slice(0, 2 + i).join(" "),
  tokens: 8 + ((5 * i) % 17),
}));

/** The lines of an answer, each the text of a token and the logarithm of its probability, whose digits determine all bits of the number. */
async function ask(job: (typeof jobs)[number]): Promise<string[]> {
  const response = await fetch(new URL("generate", server), { method: "POST", body: JSON.stringify(job) });
  const text = await response.text();
  if (!response.ok) throw new Error(`the server answered ${response.status}: ${text}`);
  return text.trimEnd().split("\n");
}

const together = await Promise.all(jobs.map(ask));
const { build, threads, largest } = (await (await fetch(new URL("health", server))).json()) as Health;

let equal = 0;
for (const [i, job] of jobs.entries()) {
  const alone = await ask(job);
  if (alone[0] !== "" && alone.join() === together[i]?.join()) equal++;
  else console.error(`answer ${i} differs\n  together ${together[i]?.join(" ")}\n  alone    ${alone.join(" ")}`);
}
const first = together[0]?.map((line) => JSON.parse(line).text).join("");
console.log(`${JSON.stringify(jobs[0]?.prompt)} continues with ${JSON.stringify(first)}`);
console.log(`${equal} of ${jobs.length} answers have the bits of the answer alone; up to ${largest} in one step`);
console.log(`build ${build}, ${threads.used} threads: ${threads.reason}`);
process.exitCode = equal === jobs.length && largest > 1 ? 0 : 1;
