//! Requests as the API server counts them (`apiserver_request_total`). Pure.

use std::collections::BTreeMap;

use serde::Serialize;

/// The metric; a counter of ended requests. A watch counts when it ends.
const METRIC: &str = "apiserver_request_total{";

/// Requests by verb and resource, such as `PATCH pods/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// Reads the Prometheus text that the API server's `/metrics` answers with. Requests for what is no resource
    /// (`/metrics` itself, `/readyz`) are left out.
    pub(super) fn parse(metrics: &str) -> Self {
        let mut requests: BTreeMap<String, u64> = BTreeMap::new();
        for line in metrics.lines() {
            let Some((labels, value)) = line.strip_prefix(METRIC).and_then(|rest| rest.rsplit_once("} ")) else {
                continue;
            };
            let label = |name: &str| {
                labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
            };
            let (Some(verb), Some(resource), Some(count)) = (label("verb"), label("resource"), count(value)) else {
                continue;
            };
            if resource.is_empty() {
                continue;
            }
            let name = match label("subresource") {
                Some(subresource) if !subresource.is_empty() => format!("{verb} {resource}/{subresource}"),
                _ => format!("{verb} {resource}"),
            };
            *requests.entry(name).or_default() += count;
        }
        Self(requests)
    }

    /// What was counted since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let earlier = |name: &String| before.0.get(name).copied().unwrap_or_default();
        let more = self.0.iter().map(|(name, count)| (name.clone(), count.saturating_sub(earlier(name))));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    /// All of them.
    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// A counter's value: a whole number, which Prometheus may write as `1.2e+06`.
fn count(value: &str) -> Option<u64> {
    value.parse().ok().or_else(|| {
        let value: f64 = value.parse().ok()?;
        // Formatting is the conversion that neither truncates nor wraps.
        format!("{value:.0}").parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"# HELP apiserver_request_total [STABLE] Counter of apiserver requests
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="PATCH",version="v1"} 100
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/metrics",verb="GET",version=""} 7
apiserver_request_duration_seconds_count{resource="pods",verb="PATCH"} 9
"#;
    const AFTER: &str = r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="PATCH",version="v1"} 1.000105e+06
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="PATCH",version="v1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="jobset.x-k8s.io",resource="jobsets",scope="resource",subresource="status",verb="PUT",version="v1alpha2"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/metrics",verb="GET",version=""} 8
"#;

    #[test]
    fn requests_of_all_codes_are_summed_by_verb_and_resource_and_others_left_out() {
        let requests = Requests::parse(AFTER);
        let wanted = [("PATCH pods", 1_000_107), ("PUT jobsets/status", 3)];
        assert_eq!(requests.0, wanted.map(|(name, count)| (name.to_owned(), count)).into());
        assert_eq!(requests.total(), 1_000_110);
    }

    #[test]
    fn difference_holds_what_has_grown() {
        let more = Requests::parse(AFTER).since(&Requests::parse(BEFORE));
        let wanted = [("PATCH pods", 1_000_007), ("PUT jobsets/status", 3)];
        assert_eq!(more.0, wanted.map(|(name, count)| (name.to_owned(), count)).into());
        assert_eq!(Requests::parse(AFTER).since(&Requests::parse(AFTER)), Requests::default());
    }
}
