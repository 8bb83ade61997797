//! The full name of the relays' Service.
//!
//! A Pod looks a name such as `jobset-relay.jobset-system.svc` up below each of its search domains first: below
//! `svc.cluster.local`, where it is that of another Pod if a namespace is called `svc`. A full name is looked up as it is, and once.

/// Where the search domains of the Pod are.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The address `HOST:PORT`, with the full name of a host that is a Service, if the search domains tell the domain of the cluster.
pub(crate) fn full_address(address: &str) -> String {
    with_domain(address, &std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
}

/// The same with this text of `resolv.conf`.
fn with_domain(address: &str, resolv_conf: &str) -> String {
    let is_service = |host: &str| host.rsplit_once('.').is_some_and(|(_, last)| last == "svc");
    let full = address
        .rsplit_once(':')
        .filter(|(host, _)| is_service(host))
        .and_then(|(host, port)| Some(format!("{host}.{}.:{port}", cluster_domain(resolv_conf)?)));
    full.unwrap_or_else(|| address.to_owned())
}

/// The domain of the cluster. The kubelet has Pods search `NAMESPACE.svc.DOMAIN`, `svc.DOMAIN` and `DOMAIN`, in this order.
fn cluster_domain(resolv_conf: &str) -> Option<&str> {
    // As resolvers do, by the last line.
    let search = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("search ")).next_back()?;
    let domains: Vec<&str> = search.split_whitespace().map(|domain| domain.trim_end_matches('.')).collect();
    let below = |domain: &str, label: &str| domain.strip_prefix(label)?.strip_prefix('.').map(str::to_owned);
    domains.windows(3).find_map(|domains| {
        let [of_namespace, of_services, of_cluster] = domains else { return None };
        let (namespace, _) = of_namespace.split_once('.')?;
        let is_domain = below(of_namespace, namespace)? == *of_services && below(of_services, "svc")? == *of_cluster;
        is_domain.then_some(*of_cluster)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual(
        "search ml.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5",
        Some("cluster.local")
    )]
    #[case::another_domain(
        "search ml.svc.k8s.example.org svc.k8s.example.org k8s.example.org",
        Some("k8s.example.org")
    )]
    #[case::namespace_called_svc("search svc.svc.cluster.local svc.cluster.local cluster.local", Some("cluster.local"))]
    #[case::domains_of_the_node("search ml.svc.c.l svc.c.l c.l svc.example.org example.org", Some("c.l"))]
    #[case::dots_at_the_end("search ml.svc.c.l. svc.c.l. c.l.", Some("c.l"))]
    #[case::last_line_counts("search example.org\nnameserver 10.0.0.10\nsearch ml.svc.c.l svc.c.l c.l", Some("c.l"))]
    #[case::node("search example.org svc.example.org example.org", None)]
    #[case::none("nameserver 10.0.0.10", None)]
    fn cluster_domain_is_read_from_the_search_domains(#[case] resolv_conf: &str, #[case] domain: Option<&str>) {
        assert_eq!(cluster_domain(resolv_conf), domain);
    }

    const POD: &str =
        "search ml.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.0.0.10\noptions ndots:5";

    #[rstest]
    #[case::usual("jobset-relay.ns.svc:9443", POD, "jobset-relay.ns.svc.cluster.local.:9443")]
    #[case::namespace_called_svc(
        "jobset-relay.ns.svc:9443",
        "search svc.svc.cluster.local svc.cluster.local cluster.local",
        "jobset-relay.ns.svc.cluster.local.:9443"
    )]
    #[case::another_domain("r.ns.svc:1", "search ml.svc.c.l svc.c.l c.l", "r.ns.svc.c.l.:1")]
    fn service_gets_its_full_name(#[case] address: &str, #[case] resolv_conf: &str, #[case] full: &str) {
        assert_eq!(with_domain(address, resolv_conf), full);
    }

    #[rstest]
    #[case::full_name("jobset-relay.ns.svc.cluster.local.:9443", POD)]
    #[case::name_with_domain("jobset-relay.ns.svc.cluster.local:9443", POD)]
    #[case::address("127.0.0.1:9443", POD)]
    #[case::other_host("relay.example.org:9443", POD)]
    #[case::no_port("jobset-relay.ns.svc", POD)]
    #[case::no_search_domains("jobset-relay.ns.svc:9443", "nameserver 10.0.0.10")]
    fn address_that_is_no_service_of_the_cluster_stays(#[case] address: &str, #[case] resolv_conf: &str) {
        assert_eq!(with_domain(address, resolv_conf), address);
    }
}
