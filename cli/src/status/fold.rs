//! Pods that are all alike, as one: a Job of five hundred Pods of which one is pending is two lines.

use super::barrier::PodBarrier;
use super::pod::PodNode;

/// Fewer Pods than this are shown one by one, whatever they are like.
const SMALLEST: usize = 4;

/// A line of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// One Pod.
    One(&'a PodNode),
    /// Several that are alike; the first stands for all of them.
    Alike(&'a PodNode, usize),
}

/// What makes Pods look alike.
fn likeness(pod: &PodNode) -> (&str, bool, Option<&str>, Option<PodBarrier>) {
    (&pod.state, pod.ready, pod.epoch.as_deref(), pod.barrier)
}

/// The lines of the Pods of one Job, each at the place of its first Pod.
pub(super) fn fold(pods: &[PodNode]) -> Vec<Line<'_>> {
    let mut kinds: Vec<(&PodNode, Vec<&PodNode>)> = Vec::new();
    for pod in pods {
        match kinds.iter_mut().find(|(first, _)| likeness(first) == likeness(pod)) {
            Some((_, alike)) => alike.push(pod),
            None => kinds.push((pod, vec![pod])),
        }
    }
    let lines = kinds.into_iter().flat_map(|(first, alike)| match alike.len() {
        0..SMALLEST => alike.into_iter().map(Line::One).collect(),
        count => vec![Line::Alike(first, count)],
    });
    lines.collect()
}
