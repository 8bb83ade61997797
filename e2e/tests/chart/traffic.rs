//! What installed programs say over the network, beside what their policies let them say. Nothing enforces the policies
//! in the clusters of these tests.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use jobset_harness::cluster::Cluster;
use jobset_harness::install::kubectl;
use jobset_harness::process::{self, Pid, Process};
use procfs::net::TcpState;
use serde_json::Value;

/// Every connection of these programs is one that their NetworkPolicy names, and there are some in each direction.
pub(crate) async fn check_network_policies(cluster: &Cluster, namespace: &str, programs: &[&str]) -> Result<()> {
    for program in programs {
        let (incoming, outgoing) = allowed(cluster, namespace, program).await?;
        let processes = processes(cluster, namespace, program).await?;
        ensure!(!processes.is_empty(), "no {program} runs");
        let mut seen = (BTreeSet::new(), BTreeSet::new());
        for process in processes {
            let (of_clients, to_servers) = connections(process.pid)?;
            seen.0.extend(of_clients);
            seen.1.extend(to_servers);
        }
        ensure!(!seen.0.is_empty() && !seen.1.is_empty(), "{program} talks to nobody: {seen:?}");
        ensure!(seen.0.is_subset(&incoming), "{program} is connected to at {:?}, allowed is {incoming:?}", seen.0);
        ensure!(seen.1.is_subset(&outgoing), "{program} connects to ports {:?}, allowed is {outgoing:?}", seen.1);
    }
    Ok(())
}

/// The processes of a program in this cluster. Other clusters on this machine have namespaces of the same name.
async fn processes(cluster: &Cluster, namespace: &str, program: &str) -> Result<Vec<Process>> {
    let pods = get(cluster, &["pods", "-n", namespace, "-l", &format!("app.kubernetes.io/name={program}")]).await?;
    let names = pods["items"].as_array().into_iter().flatten().filter_map(|pod| pod["metadata"]["name"].as_str());
    let found = names.map(|name| process::find(program, &[("HOSTNAME", name)]));
    Ok(found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Ports of a program that others may connect to, and ports of others that it may connect to.
async fn allowed(cluster: &Cluster, namespace: &str, program: &str) -> Result<(BTreeSet<u16>, BTreeSet<u16>)> {
    let policy = get(cluster, &["networkpolicy", program, "-n", namespace]).await?;
    let deployment = get(cluster, &["deployment", program, "-n", namespace]).await?;
    let declared = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().context("no ports")?;
    let port = |port: &Value| {
        let named = declared.iter().find(|it| it["name"] == port["port"]).map(|it| &it["containerPort"]);
        named.unwrap_or(&port["port"]).as_u64().and_then(|port| u16::try_from(port).ok())
    };
    let ports = |direction: &str| {
        let rules = policy["spec"][direction].as_array().into_iter().flatten();
        rules.flat_map(|rule| rule["ports"].as_array().into_iter().flatten()).filter_map(port).collect()
    };
    Ok((ports("ingress"), ports("egress")))
}

async fn get(cluster: &Cluster, what: &[&str]) -> Result<Value> {
    let output = kubectl(cluster, &[&["get", "-o", "json"][..], what].concat()).await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Own ports that somebody is connected to, and ports of others that the process's Pod is connected to.
fn connections(pid: Pid) -> Result<(BTreeSet<u16>, BTreeSet<u16>)> {
    let process = procfs::process::Process::new(pid.as_raw_nonzero().get())?;
    let sockets = [process.tcp()?, process.tcp6()?].concat();
    let (listening, connected): (Vec<_>, Vec<_>) =
        sockets.into_iter().partition(|socket| socket.state == TcpState::Listen);
    let listening: BTreeSet<u16> = listening.iter().map(|socket| socket.local_address.port()).collect();
    let (incoming, outgoing): (Vec<_>, Vec<_>) =
        connected.into_iter().partition(|socket| listening.contains(&socket.local_address.port()));
    let of_clients = incoming.iter().map(|socket| socket.local_address.port()).collect();
    Ok((of_clients, outgoing.iter().map(|socket| socket.remote_address.port()).collect()))
}

/// The API server has put the requests of agents, and those of controller and webhook, into their own levels.
pub(super) async fn check_priority_levels(cluster: &Cluster) -> Result<()> {
    let metrics = kubectl(cluster, &["get", "--raw", "/metrics"]).await?;
    let metrics = String::from_utf8_lossy(&metrics.stdout);
    for level in ["jobset-agents", "jobset-system"] {
        let series = format!(
            "apiserver_flowcontrol_dispatched_requests_total{{flow_schema=\"{level}\",priority_level=\"{level}\"}} "
        );
        let dispatched = metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok());
        ensure!(dispatched.is_some_and(|number| number > 0.0), "no request was dispatched in the level {level}");
    }
    Ok(())
}
