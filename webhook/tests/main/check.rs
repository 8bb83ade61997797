//! `--check-admission` asks a real API server, before and after the service is registered.

use anyhow::Result;
use jobset_webhook::{Error, check};

use crate::cluster::Plane;

#[tokio::test]
async fn admission_check_passes_only_with_permission_and_working_webhooks() -> Result<()> {
    let plane = Plane::start().await?;
    let check = async || check::admission(plane.client(), "default").await;
    let absent = check().await;
    assert!(matches!(&absent, Err(Error::NoDefaults { namespace }) if namespace == "default"), "{absent:?}");
    let denied = check::admission(plane.service_client().await?, "default").await;
    assert!(matches!(denied, Err(Error::ValidRejected(_))), "{denied:?}");
    let replica = plane.admission().await?;
    check().await?;
    replica.stop().await?;
    let unreachable = check().await;
    assert!(matches!(unreachable, Err(Error::ValidRejected(_))), "{unreachable:?}");
    plane.plane.stop().await
}
