// Tasks of a page's engine that come late or fail.

/** Gives the engine the next task of this name after `ms`; `as` is the task that it runs instead. */
export const holdTask = (page, task, ms, as = task) =>
  page.evaluate(
    (task, ms, as) => {
      const { postMessage } = Worker.prototype;
      Worker.prototype.postMessage = function (message, ...rest) {
        if (message.task !== task) return postMessage.call(this, message, ...rest);
        Worker.prototype.postMessage = postMessage;
        setTimeout(() => postMessage.call(this, { ...message, task: as }, ...rest), ms);
      };
    },
    task,
    ms,
    as,
  );
