//! A whole cluster of two nodes: what every test on a real kubelet relies on.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_harness::images::{self, ImageSpec};
use jobset_harness::programs::Versions;
use jobset_harness::{cluster, wait};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{Api, ListParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::objects::{POD_LIMIT, create, namespace, running, shell};

fn sleeper(name: &str, node: &str) -> serde_json::Value {
    json!({
        "metadata": { "name": name, "labels": { "app": "sleeper" } },
        "spec": {
            "hostname": name, "subdomain": "peers",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": { "kubernetes.io/hostname": node },
            "containers": [{ "name": "c", "image": images::BUSYBOX, "args": ["-c", "exec sleep 100000"] }],
        },
    })
}

/// The environment may name an older version for the kubelets than for the control plane.
#[tokio::test]
async fn api_server_and_kubelets_have_the_versions_that_are_named() -> Result<()> {
    let cluster = cluster::shared().await?;
    let client = cluster.client();
    let versions = Versions::from_environment()?;
    assert_eq!(client.apiserver_version().await?.git_version, versions.control_plane.release());
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?.items;
    let kubelets: Vec<String> =
        nodes.into_iter().filter_map(|node| Some(node.status?.node_info?.kubelet_version)).collect();
    assert_eq!(kubelets, vec![versions.kubelets.release(); cluster.nodes().len()]);
    Ok(())
}

#[tokio::test]
async fn image_loaded_runs_on_both_nodes_with_logs_and_exec() -> Result<()> {
    let cluster = cluster::shared().await?;
    let client = cluster.client();
    let namespace = namespace(&client, "image").await?;
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let spec = ImageSpec::new("localhost/own:test", Path::new("/bin/busybox"));
    let entrypoint = ["/busybox", "sh", "-c", "echo started; exec /busybox sleep 100000"];
    let image = images::build(&ImageSpec { entrypoint: &entrypoint, applets: &["sh"], ..spec })?;
    cluster.load_image(&image).await?;
    for node in cluster.nodes() {
        let mut pod = sleeper(node, node);
        pod["spec"]["containers"] = json!([{ "name": "c", "image": "localhost/own:test" }]);
        create(&pods, pod).await?;
    }
    for node in cluster.nodes() {
        let pod = running(&pods, node).await?;
        assert_eq!(pod.spec.and_then(|spec| spec.node_name).as_ref(), Some(node));
        let logs = cluster.kubectl(["--namespace", &namespace, "logs", node]).await?;
        assert_eq!(String::from_utf8_lossy(&logs.stdout), "started\n");
        assert_eq!(shell(cluster, &namespace, node, "echo $((6 * 7))").await?, "42\n");
    }
    Ok(())
}

#[tokio::test]
async fn headless_service_unready_peers_resolve_each_other() -> Result<()> {
    let cluster = cluster::shared().await?;
    let client = cluster.client();
    let namespace = namespace(&client, "dns").await?;
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    create(
        &services,
        json!({
            "metadata": { "name": "peers" },
            "spec": { "clusterIP": "None", "publishNotReadyAddresses": true, "selector": { "app": "sleeper" } },
        }),
    )
    .await?;
    for node in cluster.nodes() {
        let mut pod = sleeper(node, node);
        pod["spec"]["containers"][0]["readinessProbe"] = json!({ "exec": { "command": ["false"] } });
        create(&pods, pod).await?;
    }
    for (node, peer) in cluster.nodes().iter().zip(cluster.nodes().iter().rev()) {
        running(&pods, node).await?;
        let address = running(&pods, peer).await?.status.and_then(|status| status.pod_ip).context("no address")?;
        let question = format!("nslookup {peer}.peers.{namespace}.svc.cluster.local");
        wait::until(POD_LIMIT, format!("{peer} to be found by {node}"), || async {
            Ok(shell(cluster, &namespace, node, &question).await?.contains(&address).then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn pods_services_and_host_reach_each_other() -> Result<()> {
    let cluster = cluster::shared().await?;
    let client = cluster.client();
    let namespace = namespace(&client, "services").await?;
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    create(
        &services,
        json!({
            "metadata": { "name": "web" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
        }),
    )
    .await?;
    let node = &cluster.nodes()[0];
    let mut web = sleeper("web", node);
    web["metadata"]["labels"]["app"] = json!("web");
    web["spec"]["containers"][0]["args"] = json!(["-c", "echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"]);
    create(&pods, web).await?;
    for node in cluster.nodes() {
        create(&pods, sleeper(node, node)).await?;
    }
    let address = running(&pods, "web").await?.status.and_then(|status| status.pod_ip).context("no address")?;

    // By Service from the same node and from the other one, and to the API server.
    let fetch = "(printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n'; sleep 1) | nc -w 5 web 80";
    for node in cluster.nodes() {
        running(&pods, node).await?;
        wait::until(POD_LIMIT, format!("an answer of the Service to {node}"), || async {
            Ok(shell(cluster, &namespace, node, fetch).await?.contains("hello").then_some(()))
        })
        .await?;
        shell(cluster, &namespace, node, "nc -w 5 kubernetes.default.svc 443 < /dev/null").await?;
    }

    // From the API server, as it calls webhooks.
    let path = format!("/api/v1/namespaces/{namespace}/services/web:80/proxy/index.html");
    let proxied = cluster.kubectl(["get", "--raw", &path]).await?;
    assert_eq!(String::from_utf8_lossy(&proxied.stdout), "hello\n", "{proxied:?}");

    // From the host to a Pod.
    let mut stream = TcpStream::connect((address.as_str(), 8080)).await?;
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    assert!(answer.contains("hello"), "{answer}");

    // From a Pod to the host.
    let listener = TcpListener::bind((cluster.ready().host_address, 0)).await?;
    let target = listener.local_addr()?;
    let say = format!("echo greetings | nc -w 60 {} {}", target.ip(), target.port());
    let heard = async {
        let (mut stream, _) = tokio::time::timeout(Duration::from_mins(1), listener.accept()).await??;
        let mut line = [0; 9];
        stream.read_exact(&mut line).await?;
        anyhow::Ok(line)
    };
    let (_, heard) = tokio::try_join!(shell(cluster, &namespace, node, &say), heard)?;
    assert_eq!(&heard, b"greetings");
    Ok(())
}
