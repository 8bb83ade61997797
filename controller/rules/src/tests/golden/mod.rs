//! Golden cases, rule by rule: `cases/plan/<rule>/<case>.yaml` holds the observed objects, step by step. The snapshot beside
//! it holds the plan after each step. `cases/plan/README.md` describes the format of a case.

mod cluster;
mod defaults;
mod merge;
mod text;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Note;
use cluster::CaseCluster;

/// One document of a case: the objects that change in one step.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Step {
    /// Title of the step, the heading of its plan in the snapshot.
    #[serde(rename = "step")]
    title: String,
    /// Time of the step. Default: a minute after the step before.
    now: Option<Timestamp>,
    settings: Option<CaseSettings>,
    /// Messages of the requests that the API server has refused since the step before.
    refused: Option<Vec<String>>,
    /// What a Pod was warned of last.
    warned: Option<CaseWarning>,
    /// The agents on the agent stream.
    agents: Option<CaseAgents>,
    jobset: Value,
    namespaces: ObjectPatches,
    nodes: ObjectPatches,
    services: Option<ObjectPatches>,
    claims: ObjectPatches,
    role_bindings: ObjectPatches,
    jobs: ObjectPatches,
    pods: ObjectPatches,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CaseSettings {
    /// Value of the flag `--feature-gates`.
    #[serde(default)]
    feature_gates: String,
    /// Value of the flag `--leave-cordoned`.
    #[serde(default)]
    leave_cordoned: String,
    /// Value of the flag `--settle-names`, in seconds.
    #[serde(default)]
    settle_names: u64,
    /// Value of the flag `--move-after-failures`.
    move_after_failures: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseWarning {
    pod: String,
    words: String,
}

/// The agents on the agent stream.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CaseAgents {
    /// Names of the Pods whose agents are connected.
    connected: Vec<String>,
    /// For how long others may have been missing, in seconds.
    #[serde(default)]
    missing_for: u64,
}

/// Objects by name, each as a merge patch; null deletes one.
type ObjectPatches = Map<String, Value>;

/// The cases whose plans show the ledger. It changes with each status, and would hide what the others show.
const LEDGER: &str = "ledger";

#[test]
fn cases_lead_to_their_plans() {
    insta::glob!("../../../../cases/plan", "*/*.yaml", |path| {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(path.parent().unwrap());
        settings.set_snapshot_suffix(path.file_name().unwrap().to_string_lossy());
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        let with_ledger = path.parent().is_some_and(|rule| rule.ends_with(LEDGER));
        let case = std::fs::read_to_string(path).unwrap();
        settings.bind(|| insta::assert_snapshot!("plan", plans(&case, with_ledger)));
    });
}

/// What holds is one Event, also while its number changes; a decision is an Event of its own each time.
#[test]
fn note_that_next_plan_repeats_is_of_reason_that_holds() {
    let cases = files().filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    for path in cases {
        let mut cluster = CaseCluster::default();
        let case = std::fs::read_to_string(&path).unwrap();
        for (number, document) in serde_yaml_ng::Deserializer::from_str(&case).enumerate() {
            cluster.apply_step(Step::deserialize(document).unwrap(), number);
            let plan = cluster.plan();
            cluster.store_status(plan.status);
            let repeated = cluster.plan().notes.into_iter().filter(|note| plan.notes.contains(note));
            let wrong: Vec<Note> = repeated.filter(|note| !note.holds()).collect();
            let path = path.display();
            assert!(wrong.is_empty(), "{path}: add these reasons to HOLD in plan/notes.rs: {wrong:?}");
        }
    }
}

#[test]
fn snapshot_without_case_does_not_exist() {
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(case) = name.strip_prefix("plan@").and_then(|name| name.strip_suffix(".snap")) {
            assert!(file.with_file_name(case).exists(), "{}", file.display());
        }
    }
}

/// The cases and their snapshots.
fn files() -> impl Iterator<Item = PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/plan");
    let rules = cases.read_dir().unwrap().map(|rule| rule.unwrap().path()).filter(|path| path.is_dir());
    rules.flat_map(|rule| rule.read_dir().unwrap()).map(|file| file.unwrap().path())
}

/// The plans of a case, one for each step. The status of each plan is stored before the next step.
fn plans(case: &str, with_ledger: bool) -> String {
    let mut cluster = CaseCluster::default();
    let mut plans = String::new();
    for (number, document) in serde_yaml_ng::Deserializer::from_str(case).enumerate() {
        let step = Step::deserialize(document).unwrap();
        let _ = writeln!(plans, "--- {}", if step.title.is_empty() { "observed" } else { &step.title });
        cluster.apply_step(step, number);
        let before = cluster.status();
        let plan = cluster.plan();
        plans.push_str(&text::plan(&cluster.jobset(), &before, &plan, with_ledger));
        cluster.store_status(plan.status);
    }
    plans
}
