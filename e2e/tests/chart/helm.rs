//! What Helm says of the chart, and what `helm test` makes.

use anyhow::Result;
use jobset_harness::chart::{Chart, objects};
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

/// Only `helm test` makes these objects, and it removes them: otherwise each installation would leave a Pod.
#[rstest]
#[case::of_release("", NAMESPACE)]
#[case::of_value("test.namespace=ml", "ml")]
#[tokio::test]
async fn objects_of_helm_test_are_hooks_that_are_deleted(#[case] value: &str, #[case] checked: &str) -> Result<()> {
    let chart = Chart::new(Helm::V4).await?;
    let args = ["--show-only", "templates/tests/admission.yaml", "--set", value];
    let objects = objects(&chart.template(NAMESPACE, &args).await?)?;
    for object in objects.values() {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "test");
        assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded");
    }
    let pod = &objects[&of("Pod", NAMESPACE, "jobset-test")]["spec"];
    assert_eq!(pod["containers"][0]["image"], "localhost/jobset-webhook:dev", "no foreign image");
    assert_eq!(pod["containers"][0]["args"][0], format!("--check-admission={checked}"));
    assert!(objects.contains_key(&of("Role", checked, "jobset-test")));
    assert_eq!(objects.len(), 4);
    Ok(())
}
