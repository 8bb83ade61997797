//! Names of child objects. Objects that the Go JobSet also creates have the same names there.

use sha1::{Digest, Sha1};

/// Name of the Job with index `job_index` of a replicatedJob: `<jobset>-<replicatedJob>-<index>`.
pub fn job(jobset: &str, replicated_job: &str, job_index: i32) -> String {
    format!("{jobset}-{replicated_job}-{job_index}")
}

/// Host name of a Pod of an Indexed Job. The Job controller sets it: `<job>-<completion index>`.
pub fn pod_hostname(job: &str, completion_index: i32) -> String {
    format!("{job}-{completion_index}")
}

/// Value of [`crate::labels::JOB_KEY`]: the SHA-1 of `<namespace>/<job>` in 40 hexadecimal digits.
pub fn job_key(namespace: &str, job: &str) -> String {
    let digest = Sha1::digest(format!("{namespace}/{job}"));
    digest.iter().fold(String::with_capacity(40), |mut hex, byte| {
        use std::fmt::Write as _;
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Value of [`crate::labels::NAMESPACED_JOB`]. A label value cannot hold a slash.
pub fn namespaced_job(namespace: &str, job: &str) -> String {
    format!("{namespace}_{job}")
}

/// Name of the PersistentVolumeClaim of a template of a volumeClaimPolicy: `<template>-<jobset>`.
pub fn claim(template: &str, jobset: &str) -> String {
    format!("{template}-{jobset}")
}

/// Name of the RoleBinding of injected agents: `<jobset>-jobset-agent`.
pub fn role_binding(jobset: &str) -> String {
    format!("{jobset}-{}", crate::agent::NAME)
}

/// Value of [`crate::labels::PRIORITY`]: the number; `n5` for -5, since a label value cannot begin with a minus sign.
pub fn priority(value: i32) -> String {
    let sign = if value < 0 { "n" } else { "" };
    format!("{sign}{}", value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_go_jobset() {
        assert_eq!(job("train", "workers", 3), "train-workers-3");
        assert_eq!(pod_hostname("train-workers-3", 7), "train-workers-3-7");
        assert_eq!(namespaced_job("ml", "train-workers-3"), "ml_train-workers-3");
        assert_eq!(claim("checkpoints", "train"), "checkpoints-train");
    }

    #[test]
    fn priority_label_values_of_different_priorities_differ() {
        let values = [i32::MIN, -1, 0, 1, i32::MAX].map(priority);
        assert_eq!(values, ["n2147483648", "n1", "0", "1", "2147483647"]);
    }

    #[test]
    fn job_key_is_sha1_of_namespace_and_name() {
        // printf 'default/train-workers-0' | sha1sum
        assert_eq!(job_key("default", "train-workers-0"), "bfcf5ebea76efcf5a9add9af4c26c7d637c630a1");
    }
}
