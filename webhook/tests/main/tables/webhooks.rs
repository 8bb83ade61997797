//! The tables, decided by the webhooks without an API server, but for what its schema refuses.

use anyhow::{Context as _, Result};
use jobset_api::JobSetLimits;
use jobset_api::injection::Settings;
use jobset_webhook::jobset::Terms;
use jobset_webhook::review::{self, Reading};
use k8s_openapi::ByteString;
use serde_json::Value;

use super::case::{Case, Verdict};
use super::tables;
use crate::answer::Answer;
use crate::fuzz;

/// Cases that need what the schema fills in.
const DEFAULTED: [&str; 2] = ["a default maximum below the first wait", "another group"];

#[test]
fn webhooks_decide_as_tables_say() -> Result<()> {
    let tables = tables()?;
    let cases = tables.iter().flat_map(|(table, cases)| cases.iter().map(move |case| (table, case)));
    let is_decided_here =
        |case: &Case| !matches!(case.expected, Verdict::Malformed(_)) && !DEFAULTED.contains(&case.name.as_str());
    let mut failed = Vec::new();
    for (table, case) in cases.filter(|(_, case)| is_decided_here(case)) {
        let found = decide(case).with_context(|| format!("{table}: {}", case.name))?;
        if !found.is(&case.expected) {
            failed.push(format!("{table}: {}\n  expected {:?}\n  found    {found:?}", case.name, case.expected));
        }
    }
    assert!(failed.is_empty(), "{} cases:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

fn decide(case: &Case) -> Result<Verdict> {
    let Some(update) = &case.update else { return Ok(admit("CREATE", &case.jobset, &Value::Null)?.1) };
    let mut old =
        if case.before_admission { case.jobset.clone() } else { admit("CREATE", &case.jobset, &Value::Null)?.0 };
    if let Some(status) = &case.status {
        old["status"] = status.clone();
    }
    let mut new = old.clone();
    update.apply(&mut new)?;
    Ok(admit("UPDATE", &new, &old)?.1)
}

/// The object with what admission fills in, and the verdict on it.
fn admit(operation: &str, object: &Value, old: &Value) -> Result<(Value, Verdict)> {
    // The tables are of the rules alone.
    let injection = Settings { agent_image: Some("jobset-agent:1".to_owned()), ..Settings::default() };
    let terms = Terms { limits: JobSetLimits::NONE, injection, ..Terms::default() };
    let body = |object: &Value| fuzz::review(operation, object, old).to_string().into_bytes();
    let mutated = review::mutate(&body(object), Reading::Careful, &terms.injection)?;
    let mut stored = object.clone();
    if let Some(patch) = serde_json::to_value(mutated)?["response"].get("patch") {
        let patch: ByteString = serde_json::from_value(patch.clone())?;
        json_patch::patch(&mut stored, &serde_json::from_slice::<json_patch::Patch>(&patch.0)?)?;
    }
    let validated = review::validate(&body(&stored), Reading::Careful, &terms)?;
    let response = serde_json::to_value(validated)?["response"].take();
    let warnings: Vec<String> = response.get("warnings").cloned().map_or(Ok(Vec::new()), serde_json::from_value)?;
    let length: usize = warnings.iter().map(String::len).sum();
    anyhow::ensure!(length < 4096, "the API server cuts these warnings off: {warnings:?}");
    let verdict = if response["allowed"] == true {
        Verdict::Admitted(warnings)
    } else {
        Verdict::Denied(Answer { code: 422, object: response["status"].clone(), warnings }.causes())
    };
    Ok((stored, verdict))
}
