// Starts the page: the list of JobSets, or one JobSet, by the path.

import { byId, text } from "./dom.js";
import { follow } from "./events.js";
import { ListPage } from "./list.js";
import { JobSetPage } from "./jobset.js";

// The token of the address is spent. It need not stay in the address bar and the history.
if (location.search) history.replaceState(null, "", location.pathname);

const [, kind, namespace, name] = location.pathname.split("/").map(decodeURIComponent);
const isJobSet = kind === "jobset";
byId("main").append(byId(isJobSet ? "jobset-page" : "list-page").content.cloneNode(true));
const page = isJobSet ? new JobSetPage(namespace, name) : new ListPage();
const problems = byId("problems");

follow(isJobSet ? `/events/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}` : "/events", (update, arrived) => {
  problems.replaceChildren(...update.problems.map((problem) => text("li", problem)));
  problems.hidden = update.problems.length === 0;
  page.show(update, arrived);
});
