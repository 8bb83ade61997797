//! Programs of an older commit with those of now, in both directions: Pods keep their agent for weeks, and relays and controllers are
//! upgraded and rolled back in any order.

use anyhow::{Context as _, Result};
use jobset_harness::chart::{Chart, RELEASE};
use jobset_harness::cluster::Cluster;
use jobset_harness::images::Repository;
use jobset_harness::install::{self, NAMESPACE};
use jobset_harness::programs::{Helm, older_binaries};
use jobset_harness::progress::progress;

use super::shared::binaries;
use super::stream::Groups;
use crate::seat::take_seat;

/// The tag of older images, and that of images of now.
const OLDER: &str = "older";
const NOW: &str = "dev";

/// Tags of relays and of controllers. Agents are of both commits each time.
const SKEWS: [(&str, &str); 3] = [(NOW, NOW), (OLDER, NOW), (NOW, OLDER)];

#[tokio::test]
async fn agents_of_two_commits_restart_over_relays_of_both() -> Result<()> {
    let Some(older) = older_binaries().await? else { return Ok(()) };
    take_seat().await?;
    let cluster = Cluster::builder().audit_log().cluster(1).await?;
    install::load_product_images(&cluster, &older, &Repository::local(OLDER)?).await?;
    install::install_chart(&cluster, binaries().await?, &["--set", &tag("agent", OLDER)]).await?;
    let mut groups = Groups::apply(&cluster, "older").await?;
    groups.run_over_stream(&cluster).await?;
    upgrade(&cluster, &[tag("agent", NOW)]).await?;
    groups.join(Groups::apply(&cluster, "now").await?);

    for (relay, controller) in SKEWS {
        let skew = format!("relays {relay}, controllers {controller}");
        upgrade(&cluster, &[tag("stream.relay", relay), tag("controller", controller)]).await?;
        groups.run_over_stream(&cluster).await.with_context(|| skew.clone())?;
        groups.restart_over_stream(&cluster, 1).await.with_context(|| skew.clone())?;
        progress(&format!("{skew}: agents of both restarted over the stream"));
    }
    // Everything is rolled back but the agents of now.
    upgrade(&cluster, &[tag("stream.relay", OLDER), tag("controller", OLDER)]).await?;
    groups.run_over_stream(&cluster).await?;
    groups.restart_over_stream(&cluster, 1).await?;
    cluster.stop().await
}

/// The value of the chart that gives a program an image of this tag.
fn tag(program: &str, tag: &str) -> String {
    format!("{program}.image.tag={tag}")
}

/// Waits until all programs run with these values, and others as before.
async fn upgrade(cluster: &Cluster, values: &[String]) -> Result<()> {
    let chart = Chart::folder();
    let chart = chart.to_string_lossy();
    let upgrade = ["upgrade", RELEASE, &chart, "--namespace", NAMESPACE, "--reuse-values", "--wait", "--timeout", "4m"];
    let values = values.join(",");
    Chart::new(Helm::V4).await?.run(cluster, &[&upgrade[..], &["--set", &values]].concat()).await?;
    install::ready(cluster, NAMESPACE).await
}
