//! Whether a node or an index is at fault: a function of the strikes that the status keeps.
//!
//! A strike counts against its node, unless the same index has struck on another node within the cool-down: then the fault is that of
//! the index.

use jobset_api::NodeStrike;
pub(crate) use jobset_api::nodes::COOL_DOWN;
use jobset_api::nodes::{KEPT, STRIKE_LASTS};
use k8s_openapi::jiff::Timestamp;

use crate::types::Trigger;

/// Of so many nodes that a group runs on, one may be avoided.
const NODES_FOR_ONE: usize = 10;

/// What a strike leads to, which is the newest of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StrikeVerdict {
    /// The node has so many strikes, and is to be avoided.
    NodeAtFault(usize),
    /// The index has failed on other nodes, too. These are cleared.
    IndexAtFault(Vec<String>),
    /// There are too few strikes to tell.
    Open,
}

/// What the newest strike leads to, if a node may have less than `limit` strikes.
pub(crate) fn judge(strikes: &[NodeStrike], limit: usize) -> StrikeVerdict {
    let Some(newest) = strikes.last() else { return StrikeVerdict::Open };
    if newest.is_of_index(strikes) {
        let others = strikes.iter().filter(|it| newest.speaks_against_index_with(it));
        let mut nodes: Vec<String> = others.map(|it| it.node.clone()).chain([newest.node.clone()]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| counting(strikes, node) < limit);
        return StrikeVerdict::IndexAtFault(nodes);
    }
    match counting(strikes, &newest.node) {
        count if count >= limit => StrikeVerdict::NodeAtFault(count),
        _ => StrikeVerdict::Open,
    }
}

/// How many strikes count against a node.
pub(crate) fn counting(strikes: &[NodeStrike], node: &str) -> usize {
    strikes.iter().filter(|strike| strike.node == node && !strike.is_of_index(strikes)).count()
}

/// Whether the index has lately struck on several nodes: it is not moved.
pub(crate) fn index_is_at_fault(strikes: &[NodeStrike], job: &str, index: i32, now: Timestamp) -> bool {
    let is_its = |it: &&NodeStrike| it.job == job && it.index == index && now.duration_since(it.time.0) <= COOL_DOWN;
    strikes.iter().filter(is_its).any(|strike| strike.is_of_index(strikes))
}

/// Drops strikes that are too old to be kept.
pub(crate) fn drop_old(strikes: &mut Vec<NodeStrike>, now: Timestamp) {
    strikes.retain(|strike| now.duration_since(strike.time.0) < STRIKE_LASTS);
}

/// Adds a strike. The newest stay, and of refusals at most as many as of failures: Pods that no node takes push no failures out. Returns
/// whether it stays.
pub(crate) fn add(strikes: &mut Vec<NodeStrike>, new: NodeStrike) -> bool {
    strikes.push(new);
    let newest = strikes.len() - 1;
    let refuses_much = strikes.iter().filter(|it| is_refusal(it)).count() > KEPT / 2;
    if !refuses_much && strikes.len() <= KEPT {
        return true;
    }
    // Of several of one time, the newest goes.
    let may_go = |place: &usize| !refuses_much || is_refusal(&strikes[*place]);
    let oldest = (0..=newest).rev().filter(may_go).min_by_key(|place| strikes[*place].time.0);
    if let Some(place) = oldest {
        strikes.remove(place);
    }
    oldest != Some(newest)
}

/// Whether the node has refused a Pod.
pub(crate) fn is_refusal(strike: &NodeStrike) -> bool {
    strike.reason == Trigger::Refused.word()
}

/// How many nodes may be avoided of so many that a group runs on.
pub(crate) fn most_avoided(nodes: usize) -> usize {
    (nodes / NODES_FOR_ONE).clamp(1, KEPT)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use rstest::rstest;

    use super::StrikeVerdict::{IndexAtFault, NodeAtFault, Open};
    use super::*;

    /// Strikes as (node, index, minute).
    fn strikes(all: &[(&str, i32, i64)]) -> Vec<NodeStrike> {
        let strike = |(node, index, minute): &(&str, i32, i64)| NodeStrike {
            node: (*node).to_owned(),
            time: MicroTime(minutes(*minute)),
            job: "train-w-0".to_owned(),
            index: *index,
            reason: "container_exit".to_owned(),
            later: jobset_api::LaterFields::new(),
        };
        all.iter().map(strike).collect()
    }

    fn minutes(minutes: i64) -> Timestamp {
        Timestamp::from_second(minutes * 60).unwrap()
    }

    fn index_of(nodes: &[&str]) -> StrikeVerdict {
        IndexAtFault(nodes.iter().map(|node| (*node).to_owned()).collect())
    }

    #[rstest]
    #[case::none(&[], 1, Open)]
    #[case::first(&[("a", 0, 0)], 2, Open)]
    #[case::first_of_one(&[("a", 0, 0)], 1, NodeAtFault(1))]
    #[case::second_of_its_index(&[("a", 0, 0), ("a", 0, 1)], 2, NodeAtFault(2))]
    #[case::second_of_another_index(&[("a", 0, 0), ("a", 1, 600)], 2, NodeAtFault(2))]
    #[case::others_on_other_nodes(&[("a", 0, 0), ("b", 1, 1)], 2, Open)]
    #[case::index_on_two_nodes(&[("a", 0, 0), ("a", 0, 1), ("b", 0, 5)], 2, index_of(&["a", "b"]))]
    #[case::index_on_two_nodes_an_hour_apart(&[("a", 0, 0), ("b", 0, 60)], 1, index_of(&["a", "b"]))]
    #[case::index_on_two_nodes_later(&[("a", 0, 0), ("b", 0, 61)], 1, NodeAtFault(1))]
    #[case::others_keep_the_first_node_bad(&[("a", 1, 0), ("a", 2, 1), ("a", 0, 2), ("b", 0, 5)], 2, index_of(&["b"]))]
    #[case::index_after_the_cool_down(&[("a", 0, 0), ("b", 0, 5), ("b", 0, 61), ("b", 0, 62)], 2, NodeAtFault(2))]
    fn strikes_speak_against_node_or_index(
        #[case] all: &[(&str, i32, i64)],
        #[case] limit: usize,
        #[case] expected: StrikeVerdict,
    ) {
        assert_eq!(judge(&strikes(all), limit), expected);
    }

    #[test]
    fn index_at_fault_stays_for_the_cool_down() {
        let all = strikes(&[("a", 0, 0), ("b", 0, 5)]);
        let is_at_fault = |index, minute| index_is_at_fault(&all, "train-w-0", index, minutes(minute));
        assert_eq!([is_at_fault(0, 65), is_at_fault(0, 66), is_at_fault(1, 5)], [true, false, false]);
    }

    #[test]
    fn old_strikes_are_dropped_after_a_day() {
        let mut all = strikes(&[("a", 0, 0), ("a", 0, 1)]);
        drop_old(&mut all, minutes(24 * 60));
        assert_eq!(all, strikes(&[("a", 0, 1)]));
    }

    /// Strikes of the given minutes, for refusals or for failures.
    fn of_minutes(range: std::ops::Range<i64>, trigger: Trigger) -> Vec<NodeStrike> {
        let all: Vec<(&str, i32, i64)> = range.map(|minute| ("a", 0, minute)).collect();
        strikes(&all).into_iter().map(|it| NodeStrike { reason: trigger.word().to_owned(), ..it }).collect()
    }

    #[test]
    fn newest_strikes_stay_and_few_refusals() {
        let failures = of_minutes(0..10, Trigger::JobFailed);
        let mut all = failures.clone();
        let refusals = of_minutes(20..30, Trigger::Refused);
        let added: Vec<bool> = refusals.iter().map(|it| add(&mut all, it.clone())).collect();
        assert_eq!((all.len(), added.iter().all(|it| *it)), (KEPT, true));
        assert_eq!((&all[..8], &all[8..]), (&failures[2..], &refusals[2..]));
        let before = all.clone();
        assert!(
            !refusals[..2].iter().chain(&failures[..2]).any(|it| add(&mut all, it.clone())),
            "older ones come too late"
        );
        assert_eq!(all, before);
        assert!(add(&mut all, of_minutes(40..41, Trigger::JobFailed).remove(0)));
    }

    #[rstest]
    #[case(0, 1)]
    #[case(19, 1)]
    #[case(20, 2)]
    #[case(100_000, 16)]
    fn tenth_of_the_nodes_is_avoided(#[case] nodes: usize, #[case] expected: usize) {
        assert_eq!(most_avoided(nodes), expected);
    }
}
