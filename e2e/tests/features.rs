//! One set of features of the dependencies, whether tests are built or not.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Result, ensure};
use jobset_harness::paths;

/// The features of each dependency, by its name and version, as cargo selects them for these kinds of dependencies.
fn features(edges: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--all-features", "--prefix", "none", "--format", "{p}|{f}", "--edges", edges])
        .current_dir(paths::workspace())
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let Some((package, features)) = line.trim_end_matches(" (*)").split_once('|') else { continue };
        let known = found.entry(package.to_owned()).or_default();
        known.extend(features.split(',').map(str::to_owned));
        known.sort();
        known.dedup();
    }
    Ok(found)
}

#[test]
fn dependencies_of_tests_keep_their_features() -> Result<()> {
    let (programs, tests) = (features("normal,build")?, features("normal,build,dev")?);
    let grown: Vec<_> = programs.iter().filter(|(package, features)| tests.get(*package) != Some(features)).collect();
    ensure!(grown.is_empty(), "add to [dependencies] of e2e/Cargo.toml what tests ask for beyond {grown:?}");
    Ok(())
}
