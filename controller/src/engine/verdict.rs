//! What of a JobSet's specification cannot be carried out.

use jobset_api::validation::{self, Errors};
use jobset_api::{JobSet, labels};

/// The verdict on one specification. Judging it costs more than all other rules, and it seldom changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpecVerdict {
    uid: Option<String>,
    generation: Option<i64>,
    /// They belong to what is judged, and an edit of annotations makes no new generation.
    annotations: [Option<String>; 2],
    findings: Findings,
}

/// What is found wrong with a stored JobSet; each is none if all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why nothing of it can be carried out.
    pub invalid: Option<Box<str>>,
    /// Why its workers cannot restart in place, although it asks for that.
    pub not_in_place: Option<Box<str>>,
    /// Which message patterns match nothing.
    pub unmatchable: Option<Box<str>>,
}

impl SpecVerdict {
    /// Judges the specification.
    pub(super) fn of(jobset: &JobSet) -> Self {
        let text = |errors: Errors| (!errors.is_empty()).then(|| errors.to_string().into());
        let findings = Findings {
            invalid: text(validation::cannot_run(jobset)),
            not_in_place: text(validation::cannot_restart_in_place(jobset)),
            unmatchable: text(validation::cannot_match(jobset)),
        };
        let metadata = &jobset.metadata;
        Self { uid: metadata.uid.clone(), generation: metadata.generation, annotations: judged(jobset), findings }
    }

    /// Whether the verdict is on this specification.
    pub(super) fn is_on(&self, jobset: &JobSet) -> bool {
        let metadata = &jobset.metadata;
        self.generation.is_some()
            && self.generation == metadata.generation
            && self.uid == metadata.uid
            && self.annotations == judged(jobset)
    }

    /// What is found wrong.
    pub(super) fn findings(&self) -> &Findings {
        &self.findings
    }
}

/// The annotations that validation reads: those of exclusive placement.
fn judged(jobset: &JobSet) -> [Option<String>; 2] {
    let annotations = jobset.metadata.annotations.as_ref();
    [labels::EXCLUSIVE_TOPOLOGY, labels::NODE_SELECTOR_STRATEGY].map(|key| annotations?.get(key).cloned())
}
