//! The tables of `webhook/tests/tables`: for each rule of `api/src/validation`, JobSets that are admitted and JobSets that
//! are refused, decided by a real API server and the service that it calls.

mod case;
mod children;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use case::{Case, Verdict};
use futures::{StreamExt as _, TryStreamExt as _};
use jobset_harness::paths;
use serde_json::Value;

use crate::answer::{Answer, Writes};
use crate::cluster::Plane;

/// Files of `api/src/validation` that hold no rule: the list of the rules, what they look at, and their words.
const NO_RULES: [&str; 8] =
    ["agent/environment", "execution", "mod", "rule", "subject", "template/row", "template/tests", "testing"];
/// Cases that are tried at once.
const AT_ONCE: usize = 16;

fn folder() -> PathBuf {
    paths::workspace().join("webhook/tests/tables")
}

/// The files below the folder, by their path there without its end; a file `mod` is its folder.
fn files(folder: &Path, end: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = file?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let within = files(&path, end)?.into_iter();
            let below = |inner: String| if inner == "mod" { name.clone() } else { format!("{name}/{inner}") };
            found.extend(within.map(|(inner, path)| (below(inner), path)));
        } else if path.extension().is_some_and(|it| it == end) {
            found.insert(name, path);
        }
    }
    Ok(found)
}

/// The tables, by the names of their rules.
fn tables() -> Result<BTreeMap<String, Vec<Case>>> {
    let (bases, tables): (Vec<_>, Vec<_>) =
        files(&folder(), "yaml")?.into_iter().partition(|(name, _)| name.starts_with("bases/"));
    let mut jobsets = HashMap::new();
    for (name, path) in bases {
        let base: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(&path)?).context(name.clone())?;
        jobsets.insert(name.trim_start_matches("bases/").to_owned(), base);
    }
    let table = |(name, path): (String, PathBuf)| {
        let cases = case::read(&name, &std::fs::read_to_string(path)?, &jobsets);
        Ok((name.clone(), cases.with_context(|| format!("table {name}"))?))
    };
    tables.into_iter().map(table).collect()
}

#[test]
fn every_rule_has_accepted_and_rejected_cases() -> Result<()> {
    let rules = files(&paths::workspace().join("api/src/validation"), "rs")?.into_keys();
    let rules: BTreeSet<String> = rules.filter(|name| !NO_RULES.contains(&name.as_str())).collect();
    let tables = tables()?;
    assert_eq!(tables.keys().cloned().collect::<BTreeSet<_>>(), rules);
    for (name, cases) in tables {
        let admitted = |it: &Case| matches!(it.expected, Verdict::Admitted(_));
        let silent = |it: &Case| matches!(&it.expected, Verdict::Admitted(warnings) if warnings.is_empty());
        assert!(cases.iter().any(admitted), "{name} accepts nothing");
        assert!(!cases.iter().all(silent), "{name} refuses nothing");
        let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len(), "{name} has two cases of one name");
    }
    Ok(())
}

#[tokio::test]
async fn api_server_decides_as_tables_say() -> Result<()> {
    let tables = tables()?;
    let plane = Plane::start().await?;
    let cases: Vec<_> = tables.iter().flat_map(|(name, cases)| cases.iter().map(move |case| (name, case))).collect();
    let writes = Writes(plane.client());
    let old = cases.iter().filter(|(_, case)| case.before_admission);
    let old = futures::stream::iter(old).map(async |(table, case)| {
        let stored = writes.create(&case.jobset).await.and_then(Answer::accepted);
        stored.with_context(|| format!("{table}: {}", case.name)).map(drop)
    });
    old.buffer_unordered(AT_ONCE).try_collect::<()>().await?;

    // The tables are of the rules alone. The limits are the administrator's.
    let replica = plane.admission_with(&["--max-jobs-per-jobset=0", "--max-pods-per-jobset=0"]).await?;
    let tried = futures::stream::iter(&cases).map(async |(table, case)| {
        let title = format!("{table}: {}", case.name);
        match decide(&writes, case).await {
            Ok(found) if found.is(&case.expected) => None,
            Ok(found) => Some(format!("{title}\n  expected {:?}\n  found    {found:?}", case.expected)),
            Err(error) => Some(format!("{title}\n  {error:#}")),
        }
    });
    let failed: Vec<_> = tried.buffered(AT_ONCE).filter_map(async |it| it).collect().await;
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
    plane.end(replica).await
}

async fn decide(writes: &Writes, case: &Case) -> Result<Verdict> {
    let answer = match &case.update {
        None => writes.dry_run(&case.jobset).await?,
        Some(update) => {
            let mut jobset = if case.before_admission {
                writes.read(&case.jobset).await?
            } else {
                writes.create(&case.jobset).await?.accepted().context("cannot be created")?
            };
            if let Some(status) = &case.status {
                jobset = writes.status(crate::answer::name(&jobset), status).await?.accepted().context("its status")?;
            }
            update.apply(&mut jobset)?;
            writes.replace(&jobset).await?
        }
    };
    Ok(match answer {
        answer if answer.is_accepted() => Verdict::Admitted(answer.warnings),
        answer if answer.is_denied() => {
            let (code, reason) = (answer.code, answer.object["reason"].as_str().unwrap_or_default());
            anyhow::ensure!((code, reason) == (422, "Invalid"), "refused with {code} {reason:?}");
            Verdict::Denied(answer.causes())
        }
        answer => Verdict::Malformed(answer.causes()),
    })
}
