// Where the time of a JobSet went, as `kubectl jobset goodput` has it: texts from the ledger of its status.

const BUCKETS = ["running", "stalled", "restarting", "waiting", "starting", "scheduling", "suspended"];

/** The share of the active time that was of use; nothing if the JobSet has not been active. */
export function goodput(ledger, now = Date.now()) {
  const { times } = spent(ledger, now);
  const active = BUCKETS.filter((bucket) => bucket !== "suspended").reduce((sum, bucket) => sum + times[bucket], 0);
  if (active === 0) return undefined;
  const redone = Math.min(Math.max(0, ledger.redoneMilliseconds ?? 0), times.running);
  const without = redone > 0 ? ", without steps that are done again" : "";
  return `${percent((times.running - redone) / active)} of ${duration(active)}${without}`;
}

/** The buckets that have any time, and which one is the present one. */
export function buckets(ledger, now = Date.now()) {
  const { times } = spent(ledger, now);
  const present = ledger?.bucket.toLowerCase();
  const shown = BUCKETS.filter((bucket) => times[bucket] > 0 || bucket === present);
  return shown.map((bucket) => `${bucket} ${duration(times[bucket])}${bucket === present ? " (now)" : ""}`).join(", ");
}

/** That no worker makes progress, or that one does not while others do, as the condition says. */
export function stall(conditions) {
  const it = conditions.find(({ type }) => type === "ProgressStalled");
  return it && (it.status === "True" || it.reason === "Straggler") ? it.message : undefined;
}

/** Milliseconds in each bucket, those since the last write of the status included. */
function spent(ledger, now) {
  const times = Object.fromEntries(BUCKETS.map((bucket) => [bucket, ledger?.milliseconds?.[bucket] ?? 0]));
  const present = ledger?.bucket.toLowerCase();
  if (present in times) times[present] += Math.max(0, now - Date.parse(ledger.since));
  return { times };
}

const percent = (share) => `${(100 * share).toFixed(1)}%`;

/** A time in at most two units. */
function duration(milliseconds) {
  const seconds = milliseconds / 1000;
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (seconds < 60) return `${seconds.toFixed(milliseconds < 1000 ? 2 : 0)}s`;
  if (seconds < 3600) return `${minutes}m${Math.floor(seconds % 60)}s`;
  if (seconds < 86400) return `${hours}h${minutes % 60}m`;
  return `${days}d${hours % 24}h`;
}
