//! A cluster whose addresses are of IPv6 alone, with the product as its chart installs it.

use anyhow::Result;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::install;

use super::shared::binaries;
use super::stream::Groups;
use crate::seat::take_seat;

#[tokio::test]
async fn groups_restart_over_stream_in_cluster_of_ipv6_alone() -> Result<()> {
    take_seat().await?;
    let cluster = Cluster::builder().ipv6().audit_log().cluster(1).await?;
    // The kubelet's probes reach all programs, and the API server the webhook.
    install(&cluster, binaries().await?).await?;
    let mut groups = Groups::apply(&cluster, "ipv6").await?;
    groups.run_over_stream(&cluster).await?;
    groups.restart_over_stream(&cluster, 1).await?;
    cluster.stop().await
}
