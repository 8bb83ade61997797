//! Translation of the status of a JobSet whose agents are the Go JobSet's.
//!
//! | Go JobSet | here |
//! |---|---|
//! | `status.currentInPlaceRestartAttempt`, absent before the first lift | `syncedEpoch` = current + 1, else 0 |
//! | `status.previousInPlaceRestartAttempt`, absent before the first restart | `deprecatedEpoch` = previous + 1, else 0 |
//!
//! Such a status is stored with both sets of fields. The Go JobSet's agents read their own fields; the printer columns of
//! the CRD show ours. If the two sets differ, the Go JobSet's fields are right: the Go manager writes the whole status and
//! drops fields that it does not know.
//!
//! The Go JobSet counts recreations in `restarts` and `restartsCountTowardsMax`. It treats every attempt as a restart that
//! counts, except `restarts - restartsCountTowardsMax` of them. Here `restartsCountTowardsMax` also counts in-place
//! restarts, and some attempts are not restarts: a resume is not. The stored number can be negative.

use crate::JobSetStatus;

/// Translates a stored status into the status that the rules read.
pub fn decode(status: &mut JobSetStatus) {
    let Some(current) = status.current_in_place_restart_attempt else { return };
    status.synced_epoch = epoch(current);
    let deprecated = status.previous_in_place_restart_attempt.map_or(0, epoch);
    status.deprecated_epoch = deprecated.min(status.synced_epoch);
    let attempt = attempt(status);
    // This controller always writes the number of ready Jobs. A status without it is the Go manager's.
    if status.jobs_ready.is_empty() {
        status.group_restarts = status.group_restarts.max(attempt);
    }
    let uncounted = status.restarts.saturating_sub(status.restarts_count_towards_max);
    status.restarts_count_towards_max = attempt.saturating_sub(uncounted);
}

/// Translates a status of the rules into the status to store. `pods_report_attempts` says whether an agent of the Go JobSet
/// has reported.
pub fn encode(mut status: JobSetStatus, pods_report_attempts: bool) -> JobSetStatus {
    let speaks = pods_report_attempts || status.current_in_place_restart_attempt.is_some();
    if !speaks || status.synced_epoch == 0 {
        return status;
    }
    let stored = |epoch: i32| (epoch > 0).then(|| epoch - 1);
    status.current_in_place_restart_attempt = stored(status.synced_epoch);
    status.previous_in_place_restart_attempt = stored(status.deprecated_epoch);
    let uncounted = attempt(&status).saturating_sub(status.restarts_count_towards_max);
    status.restarts_count_towards_max = status.restarts.saturating_sub(uncounted);
    status
}

/// The newest attempt that has begun: Pods restart into it as soon as the epoch before it is deprecated.
pub fn attempt(status: &JobSetStatus) -> i32 {
    status.synced_epoch.saturating_sub(1).max(status.deprecated_epoch)
}

/// The epoch of an attempt. A negative attempt is not valid and counts as 0.
fn epoch(attempt: i32) -> i32 {
    attempt.max(0).saturating_add(1)
}
