//! Verdicts on manifests.

use jobset_harness::paths;
use rstest::rstest;

use super::*;
use crate::tests::plain;

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
fn check_agent_image_missing_is_assumed_with_note() {
    let injected = std::fs::read_to_string(paths::workspace().join("e2e/manifests/injected.yaml")).unwrap();
    let without = of(&injected);
    assert_eq!(without.objects[0].outcome, Outcome::Admitted, "{without:?}");
    let text = plain(&without);
    assert!(text.contains("\n  note: ") && text.contains("--agent-image"), "{text}");
    let injection = jobset_api::injection::Settings {
        agent_image: Some("agent:1".to_owned()),
        ..jobset_api::injection::Settings::default()
    };
    let with = check(&[source(&injected)], &AdmissionSettings { injection, ..AdmissionSettings::default() });
    assert_eq!((with.objects[0].outcome, with.objects[0].warnings.len()), (Outcome::Admitted, 0), "{with:?}");
    assert!(!plain(&with).contains("note:"), "{with:?}");
}

#[test]
fn check_file_not_utf_8_leaves_other_files_checked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), b"a: \xff\n").unwrap();
    std::fs::write(folder.path().join("b.yaml"), GOOD).unwrap();
    let verdicts = check(&sources(&[folder.path().to_owned()]).unwrap(), &AdmissionSettings::default());
    let outcomes: Vec<_> = verdicts.objects.iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unreadable, Outcome::Admitted]);
    let text = plain(&verdicts);
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
    let injection = jobset_api::injection::Settings {
        agent_image: Some("agent:1".to_owned()),
        ..jobset_api::injection::Settings::default()
    };
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
