// The updates of the page, by server-sent events. The first one has everything, later ones have what has changed.

import { byId, setText } from "./dom.js";

/** Calls `show` with each update and the time of its arrival. A hidden page asks for nothing. */
export function follow(path, show) {
  const connection = byId("connection");
  const say = (state, words) => {
    connection.dataset.state = state;
    setText(connection, words);
  };
  let source = null;
  const close = () => {
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    source = new EventSource(path);
    source.addEventListener("message", (event) => {
      const update = JSON.parse(event.data);
      say("live", update.complete ? "Live" : "Reading the cluster");
      show(update, event.timeStamp);
    });
    source.addEventListener("error", () => {
      const ended = source?.readyState === EventSource.CLOSED;
      say("lost", ended ? "Ended: run kubectl jobset ui again" : "Connection lost, trying again");
    });
  };
  // A browser has few connections to one server, so that pages in the background must not hold them.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      say("paused", "Paused");
    } else if (!source) {
      open();
    }
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  open();
}
