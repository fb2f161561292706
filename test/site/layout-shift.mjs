// How far what is shown moves by itself: the sum of Chromium's layout shifts, without those that follow a key or a click.

export const MOST_SHIFT = 0.05;

/** The sum of the shifts of a page so far. */
export const layoutShift = (page) =>
  page.evaluate(
    () =>
      new Promise((done) => {
        let sum = 0;
        const add = (list) => {
          for (const { value, hadRecentInput } of list) if (!hadRecentInput) sum += value;
        };
        new PerformanceObserver((list) => add(list.getEntries())).observe({ type: "layout-shift", buffered: true });
        requestAnimationFrame(() => setTimeout(() => done(sum), 100));
      }),
  );
