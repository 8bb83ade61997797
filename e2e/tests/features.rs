//! What cargo builds for tests: one set of features of the dependencies, and no test that `make test` leaves out.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Result, ensure};
use jobset_harness::paths;
use serde_json::Value;

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

/// `make test` names the test programs, because each needs its own number of threads.
#[test]
fn make_test_runs_every_test_program() -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(paths::workspace())
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let programs = targets.filter(|target| target["kind"][0] == "test").filter_map(|target| target["name"].as_str());
    let makefile = std::fs::read_to_string(paths::workspace().join("Makefile"))?;
    let named: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| line.contains("--test ") || line.contains("for package in"))
        .flat_map(|line| line.split([' ', ';']))
        .collect();
    let missing: Vec<&str> = programs.filter(|program| !named.contains(program)).collect();
    ensure!(missing.is_empty(), "name these test programs in the Makefile, in tests-on-* or unit-tests: {missing:?}");
    Ok(())
}
