//! Verdicts on manifests.

use jobset_harness::paths;
use rstest::rstest;

use super::*;
use crate::testing::{plain, view};

fn source(text: &str) -> Source {
    Source { name: "train.yaml".to_owned(), text: Ok(text.to_owned()) }
}

fn of(text: &str) -> Verdicts {
    check(&[source(text)], &AdmissionSettings::default())
}

const GOOD: &str = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: workers
    template: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}
";

#[test]
fn check_invalid_documents_reports_paths() {
    let text = format!(
        "{GOOD}---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n---\n{}---\n{}---\n{}",
        GOOD.replace("name: workers", "name: workers\n    replicas: -1")
            .replace("  replicatedJobs", "  failurePolicy: {restartStrategy: InPlaceRestart}\n  replicatedJobs"),
        GOOD.replace("image: b", "imagee: b, ports: [{containerPorts: 1, containerPort: 2}]")
            .replace("  replicatedJobs", "  replicas: 1\n  replicatedJobs"),
        GOOD.replace("name: workers", "name: workers\n    replicas: many"),
    );
    insta::assert_snapshot!(plain(&of(&text), &view()));
}

#[rstest]
#[case::no_yaml("a: [", Outcome::Unreadable, "is not YAML")]
#[case::twice("a: 1\na: 2", Outcome::Unreadable, "duplicate")]
#[case::no_kind("a: 1", Outcome::Unreadable, "has no apiVersion and kind")]
#[case::a_text("hello", Outcome::Unreadable, "has no apiVersion and kind")]
#[case::another_version(
    "apiVersion: jobset.x-k8s.io/v1\nkind: JobSet",
    Outcome::Rejected,
    "use jobset.x-k8s.io/v1alpha2"
)]
#[case::no_specification(
    "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}",
    Outcome::Rejected,
    "missing field `spec`"
)]
fn check_no_jobset_says_why(#[case] text: &str, #[case] outcome: Outcome, #[case] words: &str) {
    let verdicts = of(text);
    assert_eq!(verdicts.objects.iter().map(|it| it.outcome).collect::<Vec<_>>(), [outcome], "{verdicts:?}");
    assert!(plain(&verdicts, &view()).contains(words), "{verdicts:?}");
}

#[test]
fn check_lists_merge_keys_and_json_are_admitted() {
    let json = serde_json::to_string(&documents(GOOD).remove(0).unwrap()).unwrap();
    let list = format!("apiVersion: v1\nkind: List\nitems: [{json}, {json}]");
    let merged = GOOD.replace("{name: a, image: b}", "&a {name: a, image: b}, {<<: *a, name: c}");
    for (text, count) in [(json.as_str(), 1), (&list, 2), (&merged, 1)] {
        let outcomes: Vec<_> = of(text).objects.iter().map(|it| it.outcome).collect();
        assert_eq!(outcomes, vec![Outcome::Admitted; count], "{text}: {:?}", of(text));
    }
    assert_eq!(of("---\n---\n").objects, []);
}

#[test]
fn check_jobset_without_name_is_rejected() {
    let rejected = of(&GOOD.replace("{name: train}", "{}"));
    assert_eq!(rejected.objects[0].errors[0].field, "metadata.name");
    assert!(!of(&GOOD.replace("{name: train}", "{generateName: train-}")).any(Outcome::Rejected));
}

#[test]
fn check_agent_image_missing_is_assumed_with_note() {
    let injected = std::fs::read_to_string(paths::workspace().join("e2e/manifests/injected.yaml")).unwrap();
    let without = of(&injected);
    assert_eq!(without.objects[0].outcome, Outcome::Admitted, "{without:?}");
    let text = plain(&without, &view());
    assert!(text.contains("\n  note: ") && text.contains("--agent-image"), "{text}");
    let injection = jobset_api::injection::Settings { agent_image: Some("agent:1".to_owned()) };
    let with = check(&[source(&injected)], &AdmissionSettings { injection, ..AdmissionSettings::default() });
    assert_eq!((with.objects[0].outcome, with.objects[0].warnings.len()), (Outcome::Admitted, 0), "{with:?}");
    assert!(!plain(&with, &view()).contains("note:"), "{with:?}");
}

#[test]
fn check_file_not_utf_8_leaves_other_files_checked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), b"a: \xff\n").unwrap();
    std::fs::write(folder.path().join("b.yaml"), GOOD).unwrap();
    let verdicts = check(&sources(&[folder.path().to_owned()]).unwrap(), &AdmissionSettings::default());
    let outcomes: Vec<_> = verdicts.objects.iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unreadable, Outcome::Admitted]);
    let text = plain(&verdicts, &view());
    assert!(text.contains("a.yaml: unreadable\n  error: is not UTF-8: "), "{text}");
}

#[rstest]
#[case("https://example.com/train.yaml")]
#[case("http://example.com/train.yaml")]
fn sources_url_is_usage_error(#[case] url: &str) {
    let error = sources(&[url.into()]).unwrap_err();
    assert!(error.to_string().contains("URLs are not read"), "{error}");
    assert_eq!(error.exit(), crate::exit::Exit::Usage);
}

#[test]
fn check_manifests_of_e2e_are_admitted() {
    let injection = jobset_api::injection::Settings { agent_image: Some("agent:1".to_owned()) };
    let settings = AdmissionSettings { injection, ..AdmissionSettings::default() };
    for folder in ["", "features", "examples", "seeds"] {
        let sources = sources(&[paths::workspace().join("e2e/manifests").join(folder)]).unwrap();
        for verdict in check(&sources, &settings).objects {
            assert!(matches!(verdict.outcome, Outcome::Admitted | Outcome::Skipped), "{verdict:?}");
        }
    }
}

#[test]
fn sources_folder_without_manifests_is_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "").unwrap();
    let error = sources(&[folder.path().to_owned()]).unwrap_err();
    assert!(error.to_string().ends_with("contains no file that ends in .yaml, .yml or .json"), "{error}");
}
