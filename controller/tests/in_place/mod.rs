//! Restart in place: agents report, kubelets write statuses, and the controller moves epochs.

mod detection;
mod limits;
mod losses;
mod resize;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::fixture::Space;

impl Space {
    /// All of these Pods report this epoch; once the barrier is lifted, their workers run.
    pub(crate) async fn lift(&self, jobset: &str, pods: &[Pod], epoch: i32) -> Result<()> {
        for pod in pods {
            self.report(pod, &epoch.to_string()).await?;
        }
        self.status_once(jobset, &format!("to lift epoch {epoch}"), |status| status.synced_epoch == epoch).await?;
        for pod in pods {
            self.run(pod).await?;
        }
        Ok(())
    }

    /// All of these Pods are restarted in place, and report this epoch.
    pub(crate) async fn restart(&self, pods: &[Pod], epoch: i32) -> Result<()> {
        for pod in pods {
            self.reset(pod).await?;
            self.report(pod, &epoch.to_string()).await?;
        }
        Ok(())
    }

    /// Creates a JobSet that restarts in place; its Pods, with their workers running in epoch 1.
    async fn start_in_place(&self, jobset: Value, pods: usize) -> Result<Vec<Pod>> {
        let name = self.create(jobset).await?.metadata.name.unwrap_or_default();
        let pods = self.pods(&name, pods, "0").await?;
        self.lift(&name, &pods, 1).await?;
        Ok(pods)
    }
}
