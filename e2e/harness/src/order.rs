//! Orders to a running test worker, over HTTP on its Pod's address.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::http_client;

const LIMIT: Duration = Duration::from_secs(30);

/// Sends `GET path` to the worker of a Pod and returns the body of its answer.
pub async fn get(pod: &Pod, port: u16, path: &str) -> Result<String> {
    let name = pod.name_any();
    let answer = http_client::get((address(pod)?, port), path);
    let answer = timeout(LIMIT, answer).await.with_context(|| format!("{name} does not answer"))?;
    let answer = answer.with_context(|| format!("GET {path} of {name}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.split(' ').nth(1) != Some("200") {
        bail!("GET {path} of {name}: {answer}");
    }
    Ok(body.to_owned())
}

/// Makes a worker end with this exit code. It may be gone before it has answered.
pub async fn exit(pod: &Pod, port: u16, code: u8) -> Result<()> {
    end(pod, port, &format!("/exit?code={code}")).await
}

/// The same, and leaves last words (one word) in its termination log.
pub async fn exit_saying(pod: &Pod, port: u16, code: u8, words: &str) -> Result<()> {
    end(pod, port, &format!("/exit?code={code}&message={words}")).await
}

async fn end(pod: &Pod, port: u16, path: &str) -> Result<()> {
    let mut stream = timeout(LIMIT, http_client::send((address(pod)?, port), path)).await??;
    // The connection ends with the worker, cleanly or not.
    let _ = timeout(LIMIT, stream.read_to_end(&mut Vec::new())).await;
    Ok(())
}

fn address(pod: &Pod) -> Result<&str> {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("the Pod has no address")
}
