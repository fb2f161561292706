// Sends 20 requests at once and then each of them alone, and compares the answers: node client.ts [url of the server]

const server = process.argv[2] ?? "http://127.0.0.1:8000/";

/** Beginnings of a story, and different numbers of tokens. */
const words =
  "anna put the apple in the box . tom moved the apple to the bag . where was the apple ? in the bag .".split(" ");
const jobs = Array.from({ length: 20 }, (_, i) => ({
  prompt: words.slice(0, 2 + i).join(" "),
  tokens: 8 + ((5 * i) % 17),
}));

async function ask(job: (typeof jobs)[number]): Promise<string> {
  const response = await fetch(server, { method: "POST", body: JSON.stringify(job) });
  const text = await response.text();
  if (!response.ok) throw new Error(`the server answered ${response.status}: ${text}`);
  return text;
}

const together = await Promise.all(jobs.map(ask));
let equal = 0;
for (const [i, job] of jobs.entries()) if ((await ask(job)) === together[i] && together[i] !== "") equal++;
console.log(`${JSON.stringify(jobs[0]?.prompt)} continues with ${JSON.stringify(together[0])}`);
console.log(`${equal} of ${jobs.length} answers are those of the request alone`);
process.exitCode = equal === jobs.length ? 0 : 1;
