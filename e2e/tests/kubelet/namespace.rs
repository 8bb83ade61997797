//! A namespace is deleted while a group runs in it.

use anyhow::Result;
use jobset_harness::group::LIMIT;
use jobset_harness::wait;
use jobset_harness::workload::{STORY_1, SUPERVISED};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use rstest::rstest;

use super::shared::start;

#[rstest]
#[case::sidecar("deleted-whole", STORY_1)]
#[case::supervisor("deleted-whole-supervised", SUPERVISED)]
#[tokio::test]
async fn namespace_deleted_with_running_group_ends(#[case] namespace: &str, #[case] manifest: &str) -> Result<()> {
    let (group, _) = start(namespace, manifest, |workload| workload.of_shape(1, 2)).await?;
    let namespaces: Api<Namespace> = Api::all(group.client);
    namespaces.delete(namespace, &DeleteParams::default()).await?;
    wait::until(LIMIT, "the namespace to be gone", || async {
        Ok(namespaces.get_opt(namespace).await?.is_none().then_some(()))
    })
    .await
}
