//! What of a JobSet's specification cannot be carried out, and which rule of its failure policy a failed Job matches.
//!
//! Both cost more than all other rules and seldom change. They are judged when a plan asks, in the turn of the JobSet, and not
//! when an event is taken in: many changes of one tenant would otherwise hold up all others.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use jobset_api::message_pattern::MessagePatterns;
use jobset_api::validation::{self, Errors};
use jobset_api::{FailurePolicyRule, JobSet, ReplicatedJob, labels};

use crate::{Finished, JobView};

#[derive(Debug, Default)]
pub(crate) struct SpecVerdict {
    /// The specification; `None` if it has no generation, by which another one would be told.
    subject: Option<VerdictSubject>,
    judged: OnceLock<Judged>,
    /// The patterns of the specification before, if the failure policy is the same.
    kept: Option<Arc<MessagePatterns>>,
    /// The index of the first rule that each failed Job matches, if any, by the UID of the Job.
    pub(crate) own_rules: HashMap<String, Option<usize>>,
}

/// The specification that is judged.
#[derive(Debug, PartialEq, Eq)]
struct VerdictSubject {
    uid: Option<String>,
    generation: i64,
    /// They belong to what is judged, and an edit of annotations makes no new generation.
    annotations: [Option<String>; 2],
}

#[derive(Debug)]
struct Judged {
    findings: Findings,
    patterns: Arc<MessagePatterns>,
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
    /// The JobSet was observed. The verdict is dropped if it is on another specification than this one.
    pub(crate) fn renew(&mut self, before: Option<&JobSet>, jobset: &JobSet) {
        let subject = VerdictSubject::of(jobset);
        if subject.is_some() && self.subject == subject {
            return;
        }
        let is_same = before.is_some_and(|before| before.spec.failure_rules() == jobset.spec.failure_rules());
        let judged = self.judged.take().map(|judged| judged.patterns);
        let kept = judged.or(self.kept.take()).filter(|_| is_same);
        *self = Self { subject, kept, ..Self::default() };
    }

    /// The verdict on a JobSet whose specification was not read.
    pub(crate) fn of_unread(reason: &str) -> Self {
        let findings = Findings { invalid: Some(reason.into()), ..Findings::default() };
        Self { judged: Judged { findings, patterns: Arc::default() }.into(), ..Self::default() }
    }

    pub(crate) fn is_given(&self) -> bool {
        self.judged.get().is_some()
    }

    /// What is found wrong with the JobSet, which is the observed one.
    pub(crate) fn findings(&self, jobset: &JobSet) -> &Findings {
        &self.judge(jobset).findings
    }

    /// The compiled message patterns of the JobSet, which is the observed one.
    pub(crate) fn patterns(&self, jobset: &JobSet) -> &MessagePatterns {
        &self.judge(jobset).patterns
    }

    fn judge(&self, jobset: &JobSet) -> &Judged {
        self.judged.get_or_init(|| {
            let text = |errors: Errors| (!errors.is_empty()).then(|| errors.to_string().into());
            let compile = || Arc::new(MessagePatterns::compile(jobset.spec.failure_rules()));
            let patterns = self.kept.clone().unwrap_or_else(compile);
            let findings = Findings {
                invalid: text(validation::cannot_run(jobset)),
                not_in_place: text(validation::cannot_restart_in_place(jobset)),
                unmatchable: text(validation::cannot_match(jobset, &patterns)),
            };
            Judged { findings, patterns }
        })
    }
}

impl VerdictSubject {
    fn of(jobset: &JobSet) -> Option<Self> {
        let annotations = jobset.metadata.annotations.as_ref();
        // Those that validation reads: of exclusive placement.
        let judged = [labels::EXCLUSIVE_TOPOLOGY, labels::NODE_SELECTOR_STRATEGY];
        Some(Self {
            uid: jobset.metadata.uid.clone(),
            generation: jobset.metadata.generation?,
            annotations: judged.map(|key| annotations?.get(key).cloned()),
        })
    }
}

/// The reason that the podFailurePolicy of the template gives to the failure (`setConditionReason`, KEP-262).
///
/// Kubernetes does not know this field, so the reason is not in the Job. The message of the Job controller has the index of
/// the rule that failed the Job.
pub fn custom_reason<'a>(group: &'a ReplicatedJob, reason: &str, message: &str) -> Option<&'a str> {
    if reason != "PodFailurePolicy" {
        return None;
    }
    let (_, index) = message.rsplit_once("rule at index ")?;
    let digits = index.find(|c: char| !c.is_ascii_digit()).unwrap_or(index.len());
    group.template.spec.pod_failure_policy.as_ref()?.reason(index[..digits].parse().ok()?)
}

/// The index of the first rule of the failure policy whose requirements the failed Job meets, if any. An empty list is no
/// requirement. To compare the message with the patterns can take milliseconds.
pub(crate) fn own_rule(jobset: &JobSet, patterns: &MessagePatterns, job: &JobView) -> Option<usize> {
    let policy = jobset.spec.failure_policy.as_ref()?;
    let Some(Finished::Failed { reason, message, .. }) = &job.finished else { return None };
    let group = jobset.spec.replicated_jobs.iter().find(|group| group.name == job.replicated_job);
    let reason = group.and_then(|group| custom_reason(group, reason, message)).unwrap_or(reason);
    let any = |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
    let meets = |(index, rule): &(usize, &FailurePolicyRule)| {
        rule.targets(&job.replicated_job)
            && any(&rule.on_job_failure_reasons, reason)
            && (rule.on_job_failure_message_patterns.is_empty() || patterns.any_matches(*index, message))
    };
    policy.rules.iter().enumerate().find(meets).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn jobset(generation: i64, pattern: &str) -> JobSet {
        serde_json::from_value(json!({
            "metadata": { "name": "train", "uid": "u", "generation": generation },
            "spec": { "failurePolicy": { "rules": [
                { "action": "FailJobSet", "onJobFailureMessagePatterns": [pattern] } ] } },
        }))
        .unwrap()
    }

    #[test]
    fn patterns_are_compiled_once_for_each_failure_policy() {
        let (mut verdict, first) = (SpecVerdict::default(), jobset(1, "a"));
        verdict.renew(None, &first);
        assert!(!verdict.is_given());
        let compiled = Arc::clone(&verdict.judge(&first).patterns);
        // Twice, with and without a plan between.
        let (second, third) = (jobset(2, "a"), jobset(3, "a"));
        verdict.renew(Some(&first), &second);
        verdict.renew(Some(&second), &third);
        assert!(!verdict.is_given());
        assert!(Arc::ptr_eq(&verdict.judge(&third).patterns, &compiled));
        let other = jobset(4, "b");
        verdict.renew(Some(&third), &other);
        assert!(!Arc::ptr_eq(&verdict.judge(&other).patterns, &compiled));
        assert!(verdict.patterns(&other).any_matches(0, "b"));
    }

    #[test]
    fn verdict_stays_while_specification_does() {
        let (mut verdict, stored) = (SpecVerdict::default(), jobset(1, "("));
        verdict.renew(None, &stored);
        assert!(verdict.findings(&stored).unmatchable.is_some());
        verdict.own_rules.insert("job".to_owned(), Some(0));
        verdict.renew(Some(&stored), &stored);
        assert!(verdict.is_given() && verdict.own_rules.contains_key("job"));
        let annotated = JobSet { metadata: stored.metadata.clone(), ..jobset(1, "(") };
        let mut annotated = annotated;
        let annotation = (labels::EXCLUSIVE_TOPOLOGY.to_owned(), "rack".to_owned());
        annotated.metadata.annotations = Some([annotation].into());
        verdict.renew(Some(&stored), &annotated);
        assert!(!verdict.is_given() && verdict.own_rules.is_empty());
    }
}
