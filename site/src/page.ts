// What every page does: it works offline after the first visit, and says when it shows what it is there for.

/** Has the service worker keep the files of the site, and the link to the content leave the address as it is. */
export function startPage(): void {
  const skip = document.querySelector(".skip");
  skip?.addEventListener("click", (event) => {
    event.preventDefault(); // the address has the state of the page
    document.getElementById("content")?.focus();
  });
  if (!("serviceWorker" in navigator)) return;
  navigator.serviceWorker.register(new URL("../service-worker.js", import.meta.url)).catch(() => {
    // Without storage, as in private windows of some browsers, the page works as long as there is a network.
  });
}

/**
 * The page shows what it is there for, when it has drawn what waits for the next frame: tests wait for this, and measure when it
 * was. A document that is hidden, or becomes so, gets no frame: it is marked at once.
 */
export function markReady(): void {
  const mark = () => {
    document.removeEventListener("visibilitychange", mark);
    if (document.body.dataset.ready !== undefined) return;
    performance.mark("ready");
    document.body.dataset.ready = "";
  };
  if (document.hidden) mark();
  else {
    document.addEventListener("visibilitychange", mark);
    requestAnimationFrame(mark);
  }
}
