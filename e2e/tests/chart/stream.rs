//! What `stream.enabled` adds to the chart, and what it refuses.

use anyhow::Result;
use jobset_harness::chart::{Chart, Objects};
use jobset_harness::paths;
use jobset_harness::programs::Helm;
use rstest::rstest;
use serde_json::{Value, json};

use super::render::{NAMESPACE, of, render};

/// All that a program may be asked for, and by whom, where agents connect to relays.
#[tokio::test]
async fn stream_gives_each_program_what_it_needs_alone() -> Result<()> {
    let without = render(NAMESPACE, &["--set", "stream.enabled=false"]).await?;
    let with = render(NAMESPACE, &[]).await?;
    let rules = |objects: &Objects, kind: &str, namespace: &str, name: &str| {
        let role = objects.get(&of(kind, namespace, name));
        role.and_then(|it| it["rules"].as_array()).into_iter().flatten().cloned().collect::<Vec<Value>>()
    };
    let added = |kind: &str, namespace: &str, name: &str| {
        let before = rules(&without, kind, namespace, name);
        let rules = rules(&with, kind, namespace, name).into_iter();
        rules.filter(|rule| !before.contains(rule)).collect::<Vec<_>>()
    };
    let rule = |group: &str, resource: &str, names: &[&str], verbs: &[&str]| {
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    let reviews = rule("authentication.k8s.io", "tokenreviews", &[], &["create"]);
    assert_eq!(added("ClusterRole", "", "jobset-relay"), [reviews]);
    assert_eq!(rules(&with, "Role", NAMESPACE, "jobset-relay"), [] as [Value; 0]);
    let map = ["jobset-relay-ca"];
    let of_controller = [rule("", "configmaps", &[], &["create"]), rule("", "configmaps", &map, &["get", "update"])];
    assert_eq!(added("ClusterRole", "", "jobset-controller"), of_controller);
    let slices = rule("discovery.k8s.io", "endpointslices", &[], &["list", "watch"]);
    assert_eq!(added("Role", NAMESPACE, "jobset-controller-relays"), [slices]);
    let secrets = ["jobset-webhook-server-cert", "jobset-webhook-leaf", "jobset-relay-leaf", "jobset-controller-leaf"];
    let writes = rule("", "secrets", &secrets, &["get", "list", "watch", "update"]);
    assert_eq!(added("Role", NAMESPACE, "jobset-certs"), [writes]);
    assert_eq!(added("ClusterRole", "", "jobset-certs"), [] as [Value; 0]);
    assert_eq!(added("ClusterRole", "", "jobset-webhook"), [] as [Value; 0]);

    let policy = &with[&of("NetworkPolicy", NAMESPACE, "jobset-relay")]["spec"]["ingress"];
    let from = policy.as_array().into_iter().flatten().map(|rule| {
        let ports = rule["ports"].as_array().into_iter().flatten().map(|it| it["port"].clone()).collect::<Vec<_>>();
        (ports, &rule["from"])
    });
    let controller = json!([{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "jobset-controller"}}}]);
    let wanted = [
        (vec![Value::from("agents"), Value::from("health")], &Value::Null),
        (vec![Value::from("controller")], &controller),
    ];
    assert_eq!(from.collect::<Vec<_>>(), wanted);
    Ok(())
}

/// A relay on each of two nodes, both on one node, on a small one, too.
#[tokio::test]
async fn relays_never_wait_for_a_second_node() -> Result<()> {
    let objects = render(NAMESPACE, &[]).await?;
    let relays = &objects[&of("Deployment", NAMESPACE, "jobset-relay")]["spec"];
    assert_eq!(relays["replicas"], 2);
    let pod = &relays["template"]["spec"];
    for constraint in pod["topologySpreadConstraints"].as_array().into_iter().flatten() {
        assert_eq!(constraint["whenUnsatisfiable"], "ScheduleAnyway");
    }
    let affinity = pod["affinity"]["podAntiAffinity"].as_object().into_iter().flat_map(|it| it.keys());
    assert_eq!(affinity.collect::<Vec<_>>(), ["preferredDuringSchedulingIgnoredDuringExecution"]);
    assert_eq!(pod["containers"][0]["resources"]["requests"], json!({"cpu": "50m", "memory": "64Mi"}));
    Ok(())
}

#[tokio::test]
async fn one_value_switches_the_stream_off_everywhere() -> Result<()> {
    let objects = render(NAMESPACE, &["--set", "stream.enabled=false"]).await?;
    let all = serde_json::to_string(&objects.values().collect::<Vec<_>>())?;
    assert!(!all.contains("jobset-relay") && !all.contains("jobset-stream"), "{all}");
    assert!(all.contains("--feature-gates=AgentStream=false"));
    Ok(())
}

/// A tenant who may use a shared issuer gets a Certificate for any name from it, as for the controller's: relays and agents of an
/// installation that trusts that issuer would take the tenant for the leader.
#[rstest]
#[case::shared_issuer(&["kind=ClusterIssuer", "name=shared"])]
#[case::issuer_of_others(&["kind=ClusterIssuer", "name=jobset-webhook-ca"])]
#[case::issuer_of_the_namespace(&["name=mine"])]
#[case::none(&[])]
#[tokio::test]
async fn certificates_of_stream_come_from_own_issuer_alone(#[case] issuer: &[&str]) -> Result<()> {
    let fields = issuer.iter().map(|field| format!("certificates.certManager.issuerRef.{field}"));
    let values = fields.chain(["certificates.source=cert-manager".to_owned()]).collect::<Vec<_>>();
    let objects = render(NAMESPACE, &["--set", &values.join(",")]).await?;
    for name in ["jobset-relay", "jobset-controller"] {
        let spec = &objects[&of("Certificate", NAMESPACE, name)]["spec"];
        assert_eq!(spec["issuerRef"], json!({"kind": "Issuer", "name": "jobset-webhook-ca"}), "{name}");
        let secret = &objects[&of("Deployment", NAMESPACE, name)]["spec"]["template"]["spec"]["volumes"][0]["secret"];
        assert_eq!(secret["secretName"], spec["secretName"], "{name}");
    }
    // Its CA is in the namespace of the installation, where tenants create nothing.
    let own = &objects[&of("Issuer", NAMESPACE, "jobset-webhook-ca")]["spec"];
    assert_eq!(own, &json!({"ca": {"secretName": "jobset-webhook-ca"}}));
    Ok(())
}

/// With a limit of memory that holds so many agents, and with one more.
#[rstest]
#[case("1Gi", 18_698)]
#[case("512Mi", 8756)]
#[case("1G", 17_333)]
#[case("1.5Gi", 28_640)]
#[case("900000000", 15_481)]
#[tokio::test]
async fn connections_above_memory_limit_are_rejected(#[case] limit: &str, #[case] most: u32) -> Result<()> {
    let chart = Chart::new(Helm::V4).await?;
    let render = async |connections: u32| {
        let values = format!("stream.relay.resources.limits.memory={limit},stream.relay.maxConnections={connections}");
        chart.template(NAMESPACE, &["--set", &values]).await
    };
    render(most).await?;
    let refused = render(most + 1).await.unwrap_err().to_string();
    for words in [format!("stream.relay.maxConnections {}", most + 1), format!("which is {most}")] {
        assert!(refused.contains(&words), "{refused}");
    }
    Ok(())
}

/// All units of Kubernetes, and both forms of an exponent.
#[rstest]
#[tokio::test]
async fn memory_limit_may_have_any_unit(
    #[values(
        "4503599627370496m",
        "1e12",
        "1E12",
        "1000000000k",
        "1000000M",
        "1000G",
        "1T",
        "1P",
        "1E",
        "1Ti",
        "1Pi",
        "1Ei"
    )]
    limit: &str,
) -> Result<()> {
    let memory = format!("stream.relay.resources.limits.memory={limit}");
    render(NAMESPACE, &["--set-string", &memory, "--set", "stream.relay.maxConnections=80000"]).await.map(drop)
}

#[tokio::test]
async fn relay_without_memory_limit_may_have_any_connections() -> Result<()> {
    let values = "stream.relay.resources.limits=null,stream.relay.maxConnections=100000";
    render(NAMESPACE, &["--set", values]).await.map(drop)
}

/// The commands of the page delete what the component leaves out, and nothing else: `kubectl apply` deletes nothing.
#[rstest]
#[case::own_certificates("self")]
#[case::cert_manager("cert-manager")]
#[tokio::test]
async fn commands_that_switch_off_delete_what_is_left_out(#[case] source: &str) -> Result<()> {
    let source = format!("certificates.source={source}");
    let with = render(NAMESPACE, &["--set", &source]).await?;
    let without = render(NAMESPACE, &["--set", &source, "--set", "stream.enabled=false"]).await?;
    let page = std::fs::read_to_string(paths::workspace().join("docs/src/agent-stream.md"))?;
    let deletes: Vec<&str> =
        page.lines().filter(|line| line.starts_with("kubectl ") && line.contains(" delete ")).collect();
    assert!(deletes.len() > 4, "{deletes:?}");
    for ((kind, namespace, name), object) in &with {
        let is_left_out = !without.contains_key(&of(kind, namespace, name));
        let is_deleted = deletes.iter().any(|delete| {
            let (before, what) = delete.split_once(" delete ").unwrap_or_default();
            let (kinds, which) = what.split_once(' ').unwrap_or_default();
            let kind = if kind == "PodDisruptionBudget" { "pdb".to_owned() } else { kind.to_lowercase() };
            let label = object["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap_or_default();
            let is_selected = match which.strip_prefix("-l app.kubernetes.io/name=") {
                Some(selected) => selected == label,
                None => which.split(' ').any(|it| it == name),
            };
            before.contains(" -n ") != namespace.is_empty() && kinds.split(',').any(|it| it == kind) && is_selected
        });
        assert_eq!(is_deleted, is_left_out, "{kind} {name}: {deletes:#?}");
    }
    Ok(())
}

/// Peers of all egress: relays, and the API server where it is known.
#[tokio::test]
async fn egress_reaches_api_server_and_relays_alone() -> Result<()> {
    let api_server = json!({"ipBlock": {"cidr": "10.0.0.1/32"}});
    let objects = render(NAMESPACE, &["--set-json", &format!("networkPolicy.apiServers=[{api_server}]")]).await?;
    let policies = objects.iter().filter(|((kind, ..), _)| kind == "NetworkPolicy");
    let mut programs = Vec::new();
    for ((.., name), policy) in policies {
        assert!(
            policy["spec"]["policyTypes"].as_array().is_some_and(|types| types.contains(&json!("Egress"))),
            "{name}"
        );
        let rules = policy["spec"]["egress"].as_array().into_iter().flatten();
        let peers: Vec<&Value> = rules.flat_map(|rule| rule["to"].as_array().into_iter().flatten()).collect();
        let relays = json!({"podSelector": {"matchLabels": {"app.kubernetes.io/name": "jobset-relay"}}});
        let wanted = if name == "jobset-controller" { vec![&api_server, &relays] } else { vec![&api_server] };
        assert_eq!(peers, wanted, "{name}");
        programs.push(name.as_str());
    }
    assert_eq!(programs, ["jobset-certs", "jobset-controller", "jobset-relay", "jobset-webhook"]);
    Ok(())
}
