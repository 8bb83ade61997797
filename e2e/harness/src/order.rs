//! Orders to a running test worker, over HTTP on its Pod's address.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(10);

/// Sends `GET path` to the worker of a Pod and returns the body of its answer.
///
/// # Errors
/// If the Pod has no address, or the worker does not answer with 200 in time.
pub async fn get(pod: &Pod, port: u16, path: &str) -> Result<String> {
    let name = pod.name_any();
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("the Pod has no address")?;
    let answer = timeout(LIMIT, exchange(ip, port, path)).await.with_context(|| format!("{name} does not answer"))?;
    let answer = answer.with_context(|| format!("GET {path} of {name}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head.starts_with("HTTP/1.1 200") && !head.starts_with("HTTP/1.0 200") {
        bail!("GET {path} of {name}: {answer}");
    }
    Ok(body.to_owned())
}

/// Tells a worker to end with this exit code. It may be gone before it has answered.
///
/// # Errors
/// If the worker cannot be reached.
pub async fn exit(pod: &Pod, port: u16, code: u8) -> Result<()> {
    end(pod, port, &format!("/exit?code={code}")).await
}

/// The same, and leaves last words (one word) in its termination log.
///
/// # Errors
/// If the worker cannot be reached.
pub async fn exit_saying(pod: &Pod, port: u16, code: u8, words: &str) -> Result<()> {
    end(pod, port, &format!("/exit?code={code}&message={words}")).await
}

async fn end(pod: &Pod, port: u16, path: &str) -> Result<()> {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("the Pod has no address")?;
    let mut stream = timeout(LIMIT, TcpStream::connect((ip, port))).await??;
    stream.write_all(request(ip, path).as_bytes()).await?;
    let mut answer = Vec::new();
    // The connection ends with the worker, cleanly or not.
    let _ = timeout(LIMIT, stream.read_to_end(&mut answer)).await;
    Ok(())
}

async fn exchange(ip: &str, port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((ip, port)).await?;
    stream.write_all(request(ip, path).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn request(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}
