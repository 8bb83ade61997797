//! On whom a stall of the whole group is blamed.
//!
//! In a collective operation all ranks stop at one step, and those that wait look like the one that they wait for. So a Pod is blamed
//! only if it alone differs from all others in what was seen, and nothing that was seen names another one. Steps, and what workers are
//! in, tell something of workers that do the same: those of one replicatedJob, all of which have told. Otherwise the verdict is that
//! nobody knows.

use jobset_store::pods::{PodStall, PodView};

use crate::reconciliation::node_name;

/// What was seen of a worker that makes no progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct StalledWorker<'a> {
    pub pod: &'a PodView,
    /// Index of its replicatedJob.
    pub group: usize,
    pub stall: &'a PodStall,
    pub step: Option<i64>,
}

/// Why one of a group may hold up the others, and nobody can see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unseen {
    /// Pods beside them that have told of no progress.
    pub silent: usize,
    /// Pods on nodes that nobody reaches.
    pub unreachable: usize,
}

/// Who holds the group up, and why, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StallVerdict {
    /// Place of the worker that is blamed; `None`: nobody knows.
    pub blamed: Option<usize>,
    pub why: String,
}

/// Names the place of the worker that differs from all others, and what differs.
type BlameRule = fn(&[StalledWorker<'_>]) -> Option<(usize, String)>;

/// Judges the workers of a group in which none makes progress.
pub(super) fn judge(stalled: &[StalledWorker<'_>], unseen: Unseen) -> StallVerdict {
    // Of two workers either may wait for the other.
    let are_comparable = stalled.len() > 2 && unseen.silent == 0 && are_of_one_kind(stalled);
    let rules: &[BlameRule] = match unseen.unreachable {
        0 if are_comparable => &[only_stopped, only_behind, only_outside],
        0 => &[only_stopped],
        _ => &[],
    };
    let differs = || rules.iter().filter_map(|rule| rule(stalled));
    let names_other = |place: usize| differs().any(|(other, _)| other != place);
    let Some((place, what)) = differs().next().filter(|(place, _)| !names_other(*place)) else {
        return StallVerdict { blamed: None, why: unknown(stalled, unseen) };
    };
    let pod = stalled[place].pod;
    let why = format!("Pod {} on node {} {what}", pod.name, node_name(pod.node.as_ref()));
    StallVerdict { blamed: Some(place), why }
}

fn only_stopped(stalled: &[StalledWorker<'_>]) -> Option<(usize, String)> {
    let place = only(stalled, |worker| worker.stall.is_stopped)?;
    Some((place, "is stopped by a signal or a debugger".to_owned()))
}

/// Whether the workers are of one replicatedJob.
pub(super) fn are_of_one_kind(workers: &[StalledWorker<'_>]) -> bool {
    workers.iter().all(|worker| worker.group == workers[0].group)
}

/// The only worker at the lowest step, if all have told of one.
fn only_behind(stalled: &[StalledWorker<'_>]) -> Option<(usize, String)> {
    let lowest = steps(stalled)?.min()?;
    let place = only(stalled, |worker| worker.step == Some(lowest))?;
    let next = steps(stalled)?.filter(|step| *step > lowest).min()?;
    Some((place, format!("is at step {lowest}, the others are at {next} or above")))
}

/// The only one of three workers or more that is not in what all others have declared to be in.
fn only_outside(stalled: &[StalledWorker<'_>]) -> Option<(usize, String)> {
    // The first three have what most have.
    let of_first = |place: usize| stalled[place].stall.within.as_deref();
    let common = if of_first(0) == of_first(1) { of_first(0) } else { of_first(2) }?;
    let place = only(stalled, |worker| worker.stall.within.as_deref() != Some(common))?;
    let within = of_first(place).map_or_else(|| "is not".to_owned(), |within| format!("is in {within}, not"));
    Some((place, format!("{within} in {common} as all others")))
}

/// The place of the worker of which this is true, if that is exactly one of several.
fn only(stalled: &[StalledWorker<'_>], is_one: impl Fn(&StalledWorker<'_>) -> bool) -> Option<usize> {
    let mut places = (0..stalled.len()).filter(|place| is_one(&stalled[*place]));
    let place = places.next()?;
    (stalled.len() > 1 && places.next().is_none()).then_some(place)
}

/// The steps of all workers; `None` if one has told of none.
fn steps<'a>(stalled: &'a [StalledWorker<'_>]) -> Option<impl Iterator<Item = i64> + 'a> {
    stalled.iter().all(|worker| worker.step.is_some()).then(|| stalled.iter().filter_map(|worker| worker.step))
}

fn unknown(stalled: &[StalledWorker<'_>], unseen: Unseen) -> String {
    match unseen.unreachable {
        0 => {}
        1 => return "one Pod is on a node that nobody reaches".to_owned(),
        number => return format!("{number} Pods are on nodes that nobody reaches"),
    }
    if stalled.len() == 1 && unseen.silent == 0 {
        return "unknown what holds the only Pod up that tells of progress".to_owned();
    }
    let stopped = stalled.iter().filter(|worker| worker.stall.is_stopped).count();
    let told = || stalled.iter().filter_map(|worker| worker.step);
    let seen = match (told().min(), told().max()) {
        _ if stopped > 0 => format!("{stopped} of {} Pods are stopped", stalled.len()),
        _ if unseen.silent == 1 => "another Pod has told of no progress".to_owned(),
        _ if unseen.silent > 1 => format!("{} other Pods have told of no progress", unseen.silent),
        _ if !are_of_one_kind(stalled) => format!("{} Pods of several replicatedJobs", stalled.len()),
        (Some(lowest), Some(highest)) if lowest < highest => {
            let behind = told().filter(|step| *step == lowest).count();
            format!("{behind} of {} Pods are at step {lowest}, others up to {highest}", stalled.len())
        }
        (Some(step), _) if told().count() == stalled.len() => format!("all {} Pods are at step {step}", stalled.len()),
        _ => format!("{} Pods, and not all have told of a step", stalled.len()),
    };
    format!("unknown which Pod holds the others up: {seen}")
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use rstest::rstest;

    use super::*;

    /// Step, what it is in, and whether it is stopped.
    type Seen = (Option<i64>, Option<&'static str>, bool);

    const IN: Option<&str> = Some("all_reduce");

    #[rstest]
    #[case::only_worker_is_stopped(&[(Some(5), None, true)], None)]
    #[case::one_is_stopped(&[(Some(5), None, false), (Some(5), None, true)], Some(1))]
    #[case::one_is_stopped_and_another_behind(&[(Some(4), None, false), (Some(5), None, true)], Some(1))]
    #[case::one_is_stopped_and_another_behind_of_three(&[(Some(4), None, false), (Some(5), None, true), (Some(5), None, false)], None)]
    #[case::one_is_stopped_and_behind(&[(Some(4), None, true), (Some(5), None, false), (Some(5), None, false)], Some(0))]
    #[case::one_is_behind_and_another_outside(&[(Some(4), IN, false), (Some(5), None, false), (Some(5), IN, false)], None)]
    #[case::two_are_stopped(&[(Some(5), None, true), (Some(5), None, true)], None)]
    #[case::one_is_behind(&[(Some(5), None, false), (Some(4), None, false), (Some(6), None, false)], Some(1))]
    #[case::two_are_behind(&[(Some(4), None, false), (Some(4), None, false), (Some(6), None, false)], None)]
    #[case::one_has_told_of_no_step(&[(Some(4), None, false), (None, None, false), (Some(6), None, false)], None)]
    #[case::none_has_told_of_a_step(&[(None, None, false), (None, None, false)], None)]
    #[case::one_is_outside(&[(None, IN, false), (None, None, false), (None, IN, false)], Some(1))]
    #[case::first_is_outside(&[(None, None, false), (None, IN, false), (None, IN, false)], Some(0))]
    #[case::last_is_in_something_else(&[(None, IN, false), (None, IN, false), (None, Some("data"), false)], Some(2))]
    #[case::one_waits_for_two(&[(None, IN, false), (None, None, false), (None, None, false)], None)]
    #[case::one_of_two(&[(None, IN, false), (None, None, false)], None)]
    #[case::one_of_two_is_behind(&[(Some(4), None, false), (Some(5), None, false)], None)]
    #[case::all_are_in(&[(None, IN, false), (None, IN, false), (None, IN, false)], None)]
    #[case::each_is_in_something_else(&[(None, IN, false), (None, Some("a"), false), (None, Some("b"), false)], None)]
    fn worker_that_alone_differs_is_blamed(#[case] seen: &[Seen], #[case] expected: Option<usize>) {
        let stalls = stalls(seen);
        let workers = workers(seen, &stalls, |_| 0);
        let verdict = judge(&workers, Unseen::default());
        assert_eq!(verdict.blamed, expected, "{}", verdict.why);
    }

    const BEHIND: [Seen; 3] = [(Some(5), None, false), (Some(4), None, false), (Some(5), None, false)];
    const OUTSIDE: [Seen; 3] = [(None, IN, false), (None, None, false), (None, IN, false)];
    const STOPPED: [Seen; 3] = [(Some(5), None, false), (Some(5), None, true), (Some(5), None, false)];

    #[rstest]
    #[case::behind(BEHIND, [false, false])]
    #[case::outside(OUTSIDE, [false, false])]
    #[case::stopped(STOPPED, [true, true])]
    fn steps_of_others_than_all_of_one_kind_blame_nobody(#[case] seen: [Seen; 3], #[case] expected: [bool; 2]) {
        let stalls = stalls(&seen);
        let (alike, different) = (workers(&seen, &stalls, |_| 0), workers(&seen, &stalls, |place| place % 2));
        let blames = |workers: &[StalledWorker<'_>], silent, unreachable| {
            judge(workers, Unseen { silent, unreachable }).blamed.is_some()
        };
        assert!(blames(&alike, 0, 0) && !blames(&alike, 0, 1));
        assert_eq!([blames(&different, 0, 0), blames(&alike, 1, 0)], expected);
    }

    fn stalls(seen: &[Seen]) -> Vec<PodStall> {
        let stall = |(_, within, is_stopped): &Seen| PodStall {
            within: within.map(Into::into),
            is_stopped: *is_stopped,
            ..PodStall::default()
        };
        seen.iter().map(stall).collect()
    }

    fn workers<'a>(seen: &[Seen], stalls: &'a [PodStall], group: impl Fn(usize) -> usize) -> Vec<StalledWorker<'a>> {
        static POD: LazyLock<PodView> = LazyLock::new(PodView::default);
        let worker = |place: usize, stall| StalledWorker { pod: &POD, group: group(place), stall, step: seen[place].0 };
        stalls.iter().enumerate().map(|(place, stall)| worker(place, stall)).collect()
    }
}
