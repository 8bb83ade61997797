//! Golden cases. `cases/injection/<case>.yaml` is a manifest. Its snapshot shows the Pod templates after the injection,
//! or the errors.

use std::fmt::Write as _;

use serde_json::json;

use super::settings;
use crate::injection::inject;
use crate::{JobSet, defaults, labels};

#[test]
fn injection_of_each_case_matches_snapshot() {
    insta::glob!("../../../cases/injection", "*.yaml", |path| {
        let mut insta = insta::Settings::clone_current();
        insta.set_snapshot_path(path.parent().unwrap());
        insta.set_snapshot_suffix(path.file_name().unwrap().to_string_lossy());
        insta.set_prepend_module_to_snapshot(false);
        insta.set_omit_expression(true);
        insta.bind(|| insta::assert_snapshot!("injected", injected(&std::fs::read_to_string(path).unwrap())));
    });
}

fn injected(manifest: &str) -> String {
    let jobset: JobSet = serde_yaml_ng::from_str(manifest).unwrap();
    let mut spec = defaults::apply(&jobset.spec);
    let shape = &jobset.metadata.annotations.as_ref().unwrap()[labels::INJECT_AGENT];
    let errors = inject(&mut spec, shape, &settings().of(&jobset));
    if !errors.is_empty() {
        return errors.iter().fold(String::new(), |mut text, error| {
            let _ = writeln!(text, "rejected: {error}");
            text
        });
    }
    let templates = spec.replicated_jobs.iter().map(|group| json!({ (&group.name): group.template.spec.template }));
    serde_yaml_ng::to_string(&templates.collect::<Vec<_>>()).unwrap()
}
