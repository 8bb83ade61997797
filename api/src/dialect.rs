//! The status of a JobSet that the Go JobSet's agents restart in place: its dialect, and ours.
//!
//! | Go JobSet | here |
//! |---|---|
//! | `status.currentInPlaceRestartAttempt`, absent before the first lift | `syncedEpoch` = current + 1, else 0 |
//! | `status.previousInPlaceRestartAttempt`, absent before the first restart | `deprecatedEpoch` = previous + 1, else 0 |
//!
//! Such a status is stored in both dialects: Go's agents read their fields, columns ours. Where both are stored, Go's are
//! right: the Go manager writes the whole status, and drops what it does not know.
//!
//! The Go JobSet counts recreations in `restarts` and `restartsCountTowardsMax`, and takes every attempt for a restart that
//! counts, but for `restarts - restartsCountTowardsMax` of them. Here `restartsCountTowardsMax` counts restarts in place,
//! too, and not every attempt is one: a resume is none. The stored number may be negative.

use crate::JobSetStatus;

/// A stored status as the rules read it.
pub fn decode(status: &mut JobSetStatus) {
    let Some(current) = status.current_in_place_restart_attempt else { return };
    status.synced_epoch = epoch(current);
    let deprecated = status.previous_in_place_restart_attempt.map_or(0, epoch);
    status.deprecated_epoch = deprecated.min(status.synced_epoch);
    let attempt = attempt(status);
    // No status of this controller's is without the number of ready Jobs.
    if status.jobs_ready.is_empty() {
        status.group_restarts = status.group_restarts.max(attempt);
    }
    let uncounted = status.restarts.saturating_sub(status.restarts_count_towards_max);
    status.restarts_count_towards_max = attempt.saturating_sub(uncounted);
}

/// A status of the rules as it is stored. `pods_report_attempts` if an agent of the Go JobSet has reported.
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

/// The newest attempt that has begun, or was announced: the Pods of a recreation report it because they are new.
pub fn attempt(status: &JobSetStatus) -> i32 {
    let synced = status.synced_epoch;
    let announced = if status.free_epoch == synced.saturating_add(1) { synced } else { 0 };
    synced.saturating_sub(1).max(status.deprecated_epoch).max(announced)
}

/// No agent reports a negative attempt, and no manager writes one.
fn epoch(attempt: i32) -> i32 {
    attempt.max(0).saturating_add(1)
}
