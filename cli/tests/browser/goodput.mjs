// Checks the texts of goodput without a browser: node goodput.mjs.

import { buckets, goodput, stall } from "../../src/ui/assets/goodput.js";
import { equal } from "./steps.mjs";

const now = Date.parse("2026-11-22T10:00:00Z");
const texts = (ledger) => [goodput(ledger, now), buckets(ledger, now)];

const milliseconds = { scheduling: 300000, starting: 60000, running: 6720000, restarting: 40, waiting: 119960 };
const running = { bucket: "Running", since: "2026-11-22T09:00:00.000000Z", milliseconds };
const times = "running 2h52m (now), restarting 0.04s, waiting 1m59s, starting 1m0s, scheduling 5m0s";
equal(texts(running), ["95.6% of 3h0m", times], "a JobSet that runs");
const redone = { ...running, redoneMilliseconds: 360000 };
equal(goodput(redone, now), "92.2% of 3h0m, without steps that are done again", "one that has lost steps");
const finished = { bucket: "Finished", since: "2026-11-20T10:00:00Z", milliseconds: { running: 180000000, stalled: 60000000 } };
equal(texts(finished), ["75.0% of 2d18h", "running 2d2h, stalled 16h40m"], "one that has ended");
const paused = { bucket: "Suspended", since: "2026-11-20T10:00:00Z", milliseconds: { running: 3240000, starting: 360000 } };
equal(goodput(paused, now), "90.0% of 1h0m", "one that is suspended");
const created = { bucket: "Scheduling", since: "2026-11-22T10:00:00.500000Z" };
equal(goodput(created, now) ?? null, null, "one that has just been created");
equal(buckets(created, now), "scheduling 0.00s (now)", "one that has just been created");
equal([goodput(undefined, now) ?? null, buckets(undefined, now)], [null, ""], "one without a ledger");

const condition = (status, reason) => [{ type: "ProgressStalled", status, reason, message: "no step" }];
equal(stall(condition("True", "ProgressStalled")), "no step", "a stall");
equal(stall(condition("False", "Straggler")), "no step", "a straggler");
equal(stall(condition("False", "ProgressResumed")) ?? null, null, "a stall that is over");
equal(stall([]) ?? null, null, "no stall");
