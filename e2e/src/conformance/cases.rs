//! Which pass a case belongs to, by its name.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use super::Suite;

/// One run of a suite's program: its cases run against a program of ours that was started with these feature gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Value of `--feature-gates`; empty means the defaults.
    pub(super) gates: &'static str,
    pub(super) cases: BTreeSet<String>,
}

const RESTART_JOB: &str = "RestartJob=true";
const ELASTIC: &str = "ElasticJobSet=true";
const NOT_ELASTIC: &str = "ElasticJobSet=false";

/// Cases that switch a feature gate in their own process, by a part of their name, and what they switch it to.
fn switches(suite: Suite) -> &'static [(&'static str, &'static str)] {
    match suite {
        Suite::Controller => &[
            ("(with RestartJob feature gate)", RESTART_JOB),
            ("jobset restarts with RestartJob failure policy action", RESTART_JOB),
            ("jobset restarts with RestartJobAndIgnoreMaxRestarts failure policy action", RESTART_JOB),
            ("the ElasticJobSet feature gate is enabled", ELASTIC),
            ("the ElasticJobSet feature gate is disabled", NOT_ELASTIC),
        ],
        Suite::Webhook => &[
            ("is ALLOWED when ElasticJobSet is enabled", ELASTIC),
            ("parallelism and completions FAILS when values are not equal", ELASTIC),
            ("parallelism and completions FAILS for NonIndexed jobs", ELASTIC),
            ("parallelism and completions FAILS when scaling to < 1", ELASTIC),
            ("FAILS when ElasticJobSet is disabled", NOT_ELASTIC),
        ],
        _ => &[],
    }
}

/// The passes of a suite with these cases: those that need the same gates run together.
pub(super) fn passes(suite: Suite, cases: &BTreeSet<String>) -> Result<Vec<Pass>> {
    for (part, _) in switches(suite) {
        ensure!(cases.iter().any(|case| case.contains(part)), "the suite {} has no case {part:?}", suite.name());
    }
    let mut by_gates: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for case in cases {
        let switch = switches(suite).iter().find(|(part, _)| case.contains(part));
        by_gates.entry(switch.map_or("", |(_, gates)| gates)).or_default().insert(case.clone());
    }
    Ok(by_gates.into_iter().map(|(gates, cases)| Pass { gates, cases }).collect())
}

/// The passes with those cases alone whose names contain one of `focus`; all cases, if it is empty.
pub(super) fn focused(passes: Vec<Pass>, focus: &[&str]) -> Result<Vec<Pass>> {
    for word in focus {
        let known = passes.iter().flat_map(|pass| &pass.cases).any(|case| case.contains(word));
        ensure!(known, "no case has {word:?} in its name");
    }
    let wanted = |case: &String| focus.is_empty() || focus.iter().any(|word| case.contains(word));
    let chosen = passes.into_iter().map(|pass| Pass { cases: pass.cases.into_iter().filter(wanted).collect(), ..pass });
    Ok(chosen.filter(|pass| !pass.cases.is_empty()).collect())
}

/// The regular expression that this name alone matches, in the syntax of Go.
pub(super) fn exactly(name: &str) -> String {
    let mut pattern = String::new();
    for letter in name.chars() {
        if letter.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "$"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller_cases() -> BTreeSet<String> {
        let switching = switches(Suite::Controller).iter().map(|(part, _)| format!("Controller {part}."));
        switching.chain(["Controller creates Jobs".to_owned()]).collect()
    }

    #[test]
    fn cases_that_switch_a_gate_run_in_its_pass() {
        let passes = passes(Suite::Controller, &controller_cases()).unwrap();
        let sizes: Vec<_> = passes.iter().map(|pass| (pass.gates, pass.cases.len())).collect();
        assert_eq!(sizes, [("", 1), (NOT_ELASTIC, 1), (ELASTIC, 1), (RESTART_JOB, 3)]);
    }

    #[test]
    fn missing_switching_case_is_an_error() {
        let error = passes(Suite::Controller, &BTreeSet::new()).unwrap_err().to_string();
        assert_eq!(error, r#"the suite controller has no case "(with RestartJob feature gate)""#);
    }

    #[test]
    fn focus_keeps_the_pass_of_a_case() {
        let all = passes(Suite::Controller, &controller_cases()).unwrap();
        let chosen = focused(all.clone(), &["is enabled"]).unwrap();
        assert_eq!(chosen.len(), 1);
        assert_eq!(chosen[0].gates, ELASTIC);
        assert!(focused(all, &["nothing like it"]).is_err());
    }

    #[test]
    fn pattern_of_a_name_escapes_punctuation() {
        assert_eq!(exactly("[a] job. (b)"), r"\[a\] job\. \(b\)$");
    }
}
