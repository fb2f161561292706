// Tasks of a page's main thread, by their time on the processor, which other programs do not lengthen. Chromium alone reports it.

import { expect } from "../examples/given.mjs";

/** Why other engines do not measure tasks. */
export const ONLY_CHROME = "long tasks: in Chromium only, the others do not report them";

const MOST_MS = 50;

/** The longest task while `work` goes on, by its time on the processor and by the clock, in ms. */
export async function longestTask(page, work) {
  await page.tracing.start({ categories: ["-*", "toplevel", "disabled-by-default-lighthouse"] });
  await work();
  const { traceEvents } = JSON.parse(new TextDecoder().decode(await page.tracing.stop()));
  const isMain = ({ name, args }) => name === "thread_name" && args.name === "CrRendererMain";
  const threads = new Set(traceEvents.filter(isMain).map(({ pid, tid }) => `${pid} ${tid}`));
  const tasks = traceEvents.filter(
    ({ name, tdur, pid, tid }) => /RunTask$/.test(name) && tdur > 0 && threads.has(`${pid} ${tid}`),
  );
  const most = (field) => Math.max(0, ...tasks.map((task) => task[field])) / 1000;
  return { tasks: tasks.length, cpu: most("tdur"), clock: most("dur") };
}

/** Throws if a task takes more than 50 ms of the processor while `work` goes on. */
export async function expectShortTasks(page, work) {
  const { tasks, cpu, clock } = await longestTask(page, work);
  const figures = `longest of ${tasks} tasks ${cpu.toFixed(0)} ms on the processor, ${clock.toFixed(0)} ms by the clock`;
  expect("tasks that were measured", tasks > 10, true);
  expect(`${figures}: at most ${MOST_MS}`, cpu <= MOST_MS, true);
  return figures;
}
