//! Certificates of the real cert-manager: installed, replaced as a routine and after a theft by the commands of the pages.

mod certificates;
mod commands;

use std::time::Instant;

use anyhow::{Context, Result};
use jobset_e2e::cert_manager;
use jobset_harness::Cluster;
use jobset_harness::install;
use jobset_harness::progress::progress;

use self::certificates::{AUTHORITY, Certificates, LEAVES, OF_WEBHOOK};
use self::commands::{Commands, Page};
use crate::chart::reviewed_throughout;
use crate::kubelet::binaries;
use crate::kubelet::stream::Groups;

/// Restarts of each group over the stream, after each change.
const RESTARTS: u64 = 2;

/// A CA of somebody else, and what issues by it.
const ISSUERS: &str = r"
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: itself}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: my-ca, namespace: cert-manager}
spec: {isCA: true, commonName: my-ca, secretName: my-ca, issuerRef: {kind: ClusterIssuer, name: itself}}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: my-ca}
spec: {ca: {secretName: my-ca}}
";
const CHANGE_ISSUER: &str = "helm upgrade jobset deploy/chart --namespace jobset-system --reset-then-reuse-values --wait \
                             --set certificates.certManager.issuerRef.kind=ClusterIssuer \
                             --set certificates.certManager.issuerRef.name=my-ca";

#[tokio::test]
#[ignore = "five minutes: make cert-manager"]
async fn chart_with_cert_manager_replaces_certificates_without_refusals() -> Result<()> {
    let cluster = start().await?;
    let folder = tempfile::tempdir()?;
    let commands = Commands::new(&cluster, folder.path()).await?;
    let certificates = install_chart(&cluster, &commands).await?;
    let mut groups = Groups::apply(&cluster, "chart").await?;
    step("first restarts", restart(&mut groups, &cluster)).await?;

    let page = Page::read("certificate-rotation.md")?;
    let routine = page.section("### With cert-manager\n")?;
    let renew = routine.block("kubectl patch certificate")?;
    let renew_own_ca = routine.inline("cmctl renew jobset-webhook-ca")?;
    commands.stand_in_for_cmctl(renew)?;
    for (what, command, renewed) in [
        ("renewal", renew, &LEAVES[..]),
        ("renewal of the CA", renew_own_ca, &[AUTHORITY][..]),
        ("renewal by the CA of now", renew, &LEAVES[..]),
    ] {
        let change = async {
            let before = certificates.read().await?;
            commands.run(command).await?;
            certificates.are_renewed(renewed, &before).await?;
            certificates.are_served().await
        };
        step(what, Box::pin(reviewed_throughout(&cluster, change))).await?;
    }
    certificates.are_of_own_issuer().await?;
    step("restarts after it", restart(&mut groups, &cluster)).await?;

    commands.run(&format!("kubectl apply -f - <<'END'\n{ISSUERS}END")).await?;
    commands.run("kubectl wait --for=condition=Ready clusterissuer/my-ca --timeout=2m").await?;
    let change = async {
        let before = certificates.read().await?;
        commands.run(CHANGE_ISSUER).await?;
        certificates.are_renewed(&[OF_WEBHOOK], &before).await?;
        certificates.are_served().await
    };
    step("change of the issuer", Box::pin(reviewed_throughout(&cluster, change))).await?;
    cluster.stop().await
}

#[tokio::test]
#[ignore = "four minutes: make cert-manager"]
async fn stolen_ca_of_cert_manager_is_trusted_no_more() -> Result<()> {
    let cluster = start().await?;
    let folder = tempfile::tempdir()?;
    let commands = Commands::new(&cluster, folder.path()).await?;
    let certificates = install_chart(&cluster, &commands).await?;
    let mut groups = Groups::apply(&cluster, "theft").await?;
    step("first restarts", restart(&mut groups, &cluster)).await?;

    let page = Page::read("certificate-rotation.md")?;
    let before = certificates.read().await?;
    let theft = page.section("### With cert-manager: replace the key of the CA\n")?;
    let change = async {
        step("commands after a theft", commands.run(&theft.commands())).await?;
        install::ready(&cluster, install::NAMESPACE).await?;
        certificates.are_served().await
    };
    step("replacement of the key", Box::pin(reviewed_throughout(&cluster, change))).await?;
    certificates.have_other_keys(&before).await?;
    certificates.are_of_own_issuer().await?;
    certificates.were_there_at_the_start().await?;
    step("restarts after it", restart(&mut groups, &cluster)).await?;
    certificates.are_trusted_alone().await?;
    cluster.stop().await
}

#[tokio::test]
#[ignore = "three minutes: make cert-manager"]
async fn kustomization_with_cert_manager_restarts_over_stream() -> Result<()> {
    let cluster = start().await?;
    let folder = tempfile::tempdir()?;
    let commands = Commands::new(&cluster, folder.path()).await?;
    let page = Page::read("install.md")?;
    let apply = page.inline("kubectl apply --server-side -k deploy/cert-manager")?;
    let rolled_out = page.section("## Check it\n")?;
    step("kubectl apply", commands.run(apply)).await?;
    step("rollouts", commands.run(rolled_out.block("kubectl rollout status")?)).await?;
    let certificates = Certificates::of(&cluster);
    certificates.are_of_own_issuer().await?;
    certificates.are_served().await?;
    let mut groups = Groups::apply(&cluster, "kustomization").await?;
    step("restarts", restart(&mut groups, &cluster)).await?;
    cluster.stop().await
}

#[tokio::test]
#[ignore = "three minutes: make cert-manager"]
async fn own_certificates_change_to_those_of_cert_manager() -> Result<()> {
    let cluster = start().await?;
    install::install(&cluster, binaries().await?).await?;
    let mut groups = Groups::apply(&cluster, "change").await?;
    step("restarts with own certificates", restart(&mut groups, &cluster)).await?;
    let folder = tempfile::tempdir()?;
    let commands = Commands::new(&cluster, folder.path()).await?;
    let page = Page::read("certificates.md")?;
    let change = page.section("## Change from `self` to cert-manager\n")?;
    step("commands of the change", commands.run(change.block("deploy/cert-manager")?)).await?;
    step("rollouts", install::ready(&cluster, install::NAMESPACE)).await?;
    let certificates = Certificates::of(&cluster);
    certificates.are_of_own_issuer().await?;
    certificates.are_served().await?;
    step("restarts", restart(&mut groups, &cluster)).await?;
    cluster.stop().await
}

/// Installs the chart as the page says.
async fn install_chart<'a>(cluster: &'a Cluster, commands: &Commands<'_>) -> Result<Certificates<'a>> {
    let page = Page::read("install.md")?;
    step("helm install", commands.run(page.block("certificates.source=cert-manager")?)).await?;
    let certificates = Certificates::of(cluster);
    certificates.are_of_own_issuer().await?;
    certificates.are_trusted_alone().await?;
    Ok(certificates)
}

/// A cluster with cert-manager, and the images of the product.
async fn start() -> Result<Cluster> {
    let cluster = step("cluster", Cluster::builder().audit_log().cluster(2)).await?;
    install::load_images(&cluster, binaries().await?).await?;
    step("cert-manager", cert_manager::install(&cluster)).await?;
    Ok(cluster)
}

/// Waits until all agents are connected to relays, and lets the groups restart.
async fn restart(groups: &mut Groups, cluster: &Cluster) -> Result<()> {
    groups.run_over_stream(cluster).await?;
    groups.restart_over_stream(cluster, RESTARTS).await
}

/// Does what is named so, and prints how long it took.
async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let begun = Instant::now();
    let done = work.await.with_context(|| name.to_owned())?;
    progress(&format!("{name}: {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(done)
}
