//! What Helm says of the chart, and what `helm test` makes.

use anyhow::Result;
use jobset_harness::chart::{Chart, by_name, objects};
use jobset_harness::programs::Helm;
use rstest::rstest;

use super::render::{MONITORING, NAMESPACE, of};

/// Helm names what it finds with `[INFO]`, `[WARNING]` or `[ERROR]`.
#[rstest]
#[case::helm_3(Helm::V3)]
#[case::helm_4(Helm::V4)]
#[tokio::test]
async fn helm_lint_finds_nothing(#[case] version: Helm) -> Result<()> {
    let chart = Chart::new(version).await?;
    let everything = [&MONITORING[..], &["--set", "certificates.source=cert-manager"]].concat();
    for args in [&[][..], &everything[..]] {
        let found = chart.lint(args).await?;
        assert!(!found.contains("\n["), "{found}");
    }
    Ok(())
}

/// Only `helm test` makes these objects, and it removes them: otherwise each installation would leave a Pod. Helm reports each hook as
/// a test, so they are one.
#[rstest]
#[case::of_release("", NAMESPACE)]
#[case::of_value("test.namespace=ml", "ml")]
#[tokio::test]
async fn objects_of_helm_test_are_one_hook_that_is_deleted(#[case] value: &str, #[case] checked: &str) -> Result<()> {
    let chart = Chart::new(Helm::V4).await?;
    let args = ["--show-only", "templates/tests/admission.yaml", "--set", value];
    let hooks = objects(&chart.template(NAMESPACE, &args).await?)?;
    let hook = &hooks[&of("List", "", "jobset-test")];
    assert_eq!(hooks.len(), 1);
    let annotations = &hook["metadata"]["annotations"];
    assert_eq!(annotations["helm.sh/hook"], "test");
    assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded");
    let objects = by_name(hook["items"].as_array().cloned().unwrap_or_default())?;
    // What takes lists apart must not take them for objects of the release.
    assert!(objects.values().all(|it| it["metadata"]["annotations"]["helm.sh/hook"] == "test"), "{objects:?}");
    let pod = &objects[&of("Pod", NAMESPACE, "jobset-test")]["spec"];
    assert_eq!(pod["containers"][0]["image"], "localhost/jobset-webhook:dev", "no foreign image");
    assert_eq!(pod["containers"][0]["args"][0], format!("--check-admission={checked}"));
    assert!(objects.contains_key(&of("Role", checked, "jobset-test")));
    assert_eq!(objects.len(), 4);
    Ok(())
}
