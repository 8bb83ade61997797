//! What admission would say of a JobSet.

use jobset_api::gates::Gates;
use jobset_api::{JobSet, labels, validation};

/// The verdict on one specification. Judging it costs more than a pass of the rules, and it seldom changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    uid: Option<String>,
    generation: Option<i64>,
    /// They belong to what is judged, and an edit of annotations makes no new generation.
    annotations: [Option<String>; 2],
    refused: Option<Box<str>>,
}

impl Verdict {
    /// Judges the specification. A feature that is switched off makes nothing invalid that was admitted while it was on.
    pub(super) fn of(jobset: &JobSet) -> Self {
        let errors = validation::validate(jobset, Gates::default());
        let refused = (!errors.is_empty()).then(|| errors.to_string().into());
        let metadata = &jobset.metadata;
        Self { uid: metadata.uid.clone(), generation: metadata.generation, annotations: judged(jobset), refused }
    }

    /// Whether the verdict is on this specification.
    pub(super) fn is_on(&self, jobset: &JobSet) -> bool {
        let metadata = &jobset.metadata;
        self.generation.is_some()
            && self.generation == metadata.generation
            && self.uid == metadata.uid
            && self.annotations == judged(jobset)
    }

    /// What is refused, if anything.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// The annotations that validation reads: those of exclusive placement.
fn judged(jobset: &JobSet) -> [Option<String>; 2] {
    let annotations = jobset.metadata.annotations.as_ref();
    [labels::EXCLUSIVE_TOPOLOGY, labels::NODE_SELECTOR_STRATEGY].map(|key| annotations?.get(key).cloned())
}
