//! The arguments and the configuration file of the Go JobSet's manager start this controller, too.

use anyhow::Result;

use crate::fixture::Vacant;

#[tokio::test]
async fn go_manager_arguments_start_the_controller_with_one_warning() -> Result<()> {
    let vacant = Vacant::start().await?;
    let config = vacant.plane().dir().join("controller_manager_config.yaml");
    // As in its manifests, and more of it.
    let text = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\nleaderElection:\n  leaderElect: true\n\
                internalCertManagement:\n  enable: true\nclientConnection:\n  qps: 50\n  burst: 100\nfeatureGates:\n  \
                ElasticJobSet: false\nmetrics:\n  bindAddress: ':8443'\n";
    std::fs::write(&config, text)?;
    let config = format!("--config={}", config.display());
    let arguments = [config.as_str(), "--zap-log-level=2", "--leader-elect", "--kube-api-qps", "500.0"];
    let fixture = vacant.start_controller(&arguments)?;
    let program = &fixture.controller;
    let started = program.logged("jobset-controller starts").await?;
    assert!(started.contains("ElasticJobSet=false"), "{started}");
    let warning = program.logged("have no meaning here").await?;
    assert!(warning.contains("--zap-log-level, metrics.bindAddress"), "{warning}");
    program.logged("leading lease").await?;
    Ok(())
}
