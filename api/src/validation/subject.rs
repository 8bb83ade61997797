//! The JobSet as the rules see it.

use std::collections::HashMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::gates::Gates;
use crate::syntax;
use crate::{JobSet, JobSetSpec, ReplicatedJob, RestartStrategy};

/// An annotation, whether its value can be read, and what the value must be.
pub(super) type ReadAnnotation = (&'static str, fn(&JobSet, &str) -> bool, &'static str);

/// A JobSet with values that more than one rule needs.
pub(super) struct Subject<'a> {
    pub(super) jobset: &'a JobSet,
    pub(super) spec: &'a JobSetSpec,
    pub(super) gates: Gates,
    pub(super) name: JobSetName<'a>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(jobset: &'a JobSet, gates: Gates) -> Self {
        let replicated_jobs = jobset.spec.replicated_jobs.iter().enumerate();
        let mut places = HashMap::with_capacity(jobset.spec.replicated_jobs.len());
        for (place, replicated_job) in replicated_jobs {
            places.entry(replicated_job.name.as_str()).or_insert(place);
        }
        Self { jobset, spec: &jobset.spec, gates, name: JobSetName::of(&jobset.metadata), places }
    }

    /// Index of the replicatedJob with this name. If there are several, the first.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The replicatedJob with this name, and its index.
    pub(super) fn replicated_job(&self, name: &str) -> Option<(usize, &'a ReplicatedJob)> {
        let place = self.place(name)?;
        Some((place, self.spec.replicated_jobs.get(place)?))
    }

    /// Rejects annotations whose values mean nothing.
    pub(super) fn check_annotations(&self, annotations: &[ReadAnnotation], errors: &mut Errors) {
        for &(key, is_valid, must) in annotations {
            if let Some(malformed) = self.jobset.annotation(key).filter(|text| !is_valid(self.jobset, text)) {
                errors.invalid(&Path::annotation(key), malformed, must);
            }
        }
    }

    /// Whether the JobSet restarts in place. If not, warns of these annotations.
    pub(super) fn is_in_place_or_warns(
        &self,
        annotations: impl IntoIterator<Item = &'static str>,
        warnings: &mut Warnings,
    ) -> bool {
        let strategy = self.spec.restart_strategy();
        let in_place = strategy == RestartStrategy::InPlaceRestart;
        for key in annotations.into_iter().filter(|_| !in_place) {
            let text = format_args!("has no effect with restartStrategy {strategy:?}: it is for InPlaceRestart");
            warnings.push(&Path::annotation(key), text);
        }
        in_place
    }

    pub(super) fn for_each_job(&self, spec: &Path<'_>, mut look: impl FnMut(&'a ReplicatedJob, &Path<'_>)) {
        let replicated_jobs = spec.child("replicatedJobs");
        for (index, replicated_job) in self.spec.replicated_jobs.iter().enumerate() {
            look(replicated_job, &replicated_jobs.index(index));
        }
    }

    /// Calls `look` with the Pod specification of each replicatedJob that has one, and its path.
    pub(super) fn for_each_pod(&self, spec: &Path<'_>, mut look: impl FnMut(&'a PodSpec, &Path<'_>)) {
        self.for_each_job(spec, |replicated_job, path| {
            if let Some(pod) = &replicated_job.template.spec.template.spec {
                look(pod, &path.child("template.spec.template.spec"));
            }
        });
    }
}

/// Calls `look` with each container of a Pod and its path. Init containers are first.
pub(super) fn for_each_container<'a>(
    pod: &'a PodSpec,
    path: &Path<'_>,
    mut look: impl FnMut(&'a Container, &Path<'_>),
) {
    let lists =
        [("initContainers", pod.init_containers.as_deref().unwrap_or_default()), ("containers", &pod.containers)];
    for (field, containers) in lists {
        let list = path.child(field);
        for (index, container) in containers.iter().enumerate() {
            look(container, &list.index(index));
        }
    }
}

/// The name of a JobSet, or the known part of a name that the API server will generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobSetName<'a> {
    known: &'a str,
    random: usize,
}

impl<'a> JobSetName<'a> {
    /// Characters that the API server adds to `generateName`.
    const RANDOM: usize = 5;

    pub(super) fn of(metadata: &'a ObjectMeta) -> Self {
        let filled = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
        match (filled(&metadata.name), filled(&metadata.generate_name)) {
            (Some(name), _) => Self { known: name, random: 0 },
            // The API server cuts `generateName` so that the name fits into a label.
            (None, Some(begin)) => {
                let end = begin.floor_char_boundary(syntax::LABEL_LENGTH - Self::RANDOM);
                Self { known: &begin[..end], random: Self::RANDOM }
            }
            (None, None) => Self { known: "", random: 0 },
        }
    }

    pub(super) fn len(self) -> usize {
        self.known.len() + self.random
    }

    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether the name can be the start of a DNS label. The names of Jobs and of the Service start with it.
    pub(super) fn begins_a_dns_label(self) -> bool {
        // A generated name ends with a letter or digit. A name that is too long is reported by its length.
        let known = if self.random > 0 { self.known.trim_end_matches('-') } else { self.known };
        known.len() > syntax::LABEL_LENGTH || syntax::is_dns1035_label(known)
    }
}

impl fmt::Display for JobSetName<'_> {
    /// The name. An `x` stands for each character that is not known yet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:x<width$}", self.known, "", width = self.random)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn metadata(name: &str, generate_name: &str) -> ObjectMeta {
        let set = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ObjectMeta { name: set(name), generate_name: set(generate_name), ..ObjectMeta::default() }
    }

    #[rstest]
    #[case::given("train", "", "train", true)]
    #[case::given_and_generated("train", "other-", "train", true)]
    #[case::generated("", "train-", "train-xxxxx", true)]
    #[case::generated_from_much(
        "",
        &"a".repeat(100),
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaxxxxx",
        true
    )]
    #[case::generated_from_other_script("", &"ü".repeat(100), &format!("{}xxxxx", "ü".repeat(29)), false)]
    #[case::missing("", "", "", false)]
    #[case::dot("train.a", "", "train.a", false)]
    #[case::digit("1train", "", "1train", false)]
    fn name_with_generated_suffix_has_full_length(
        #[case] given: &str,
        #[case] generate: &str,
        #[case] text: &str,
        #[case] label: bool,
    ) {
        let metadata = metadata(given, generate);
        let name = JobSetName::of(&metadata);
        assert_eq!((name.to_string().as_str(), name.begins_a_dns_label()), (text, label));
        assert_eq!(name.len(), text.len());
    }
}
