//! Folds Pods that are alike into one line. A Job of 500 Pods, one of which is pending, takes two lines.

use super::barrier::PodBarrier;
use super::pod::PodNode;

/// The fewest Pods that are folded.
const SMALLEST: usize = 4;

/// One or more Pods in a line of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodLine<'a> {
    /// One Pod.
    One(&'a PodNode),
    /// The first of several Pods that are alike, and their count.
    Alike(&'a PodNode, usize),
}

/// Pods with the same key are alike.
fn key(pod: &PodNode) -> (&str, bool, Option<&str>, Option<PodBarrier>) {
    (&pod.state, pod.ready, pod.epoch.as_deref(), pod.barrier)
}

/// The lines for the Pods of one Job. Each line takes the place of its first Pod.
pub(super) fn fold(pods: &[PodNode]) -> Vec<PodLine<'_>> {
    let mut kinds: Vec<(&PodNode, Vec<&PodNode>)> = Vec::new();
    for pod in pods {
        match kinds.iter_mut().find(|(first, _)| key(first) == key(pod)) {
            Some((_, alike)) => alike.push(pod),
            None => kinds.push((pod, vec![pod])),
        }
    }
    let lines = kinds.into_iter().flat_map(|(first, alike)| match alike.len() {
        0..SMALLEST => alike.into_iter().map(PodLine::One).collect(),
        count => vec![PodLine::Alike(first, count)],
    });
    lines.collect()
}
