//! Requests as the API server counts them (`apiserver_request_total`).

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::Client;
use serde::Serialize;

/// The metric; a counter of ended requests. A watch counts when it ends.
const METRIC: &str = "apiserver_request_total{";

/// Requests by verb and resource, such as `PATCH pods/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ApiRequests(BTreeMap<String, u64>);

impl ApiRequests {
    pub(super) async fn read(client: &Client) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new()).context("not a request")?;
        Ok(Self::parse(&client.request_text(request).await.context("cannot read the API server's metrics")?))
    }

    /// Parses the Prometheus text of `/metrics`, without requests for what is no resource (`/metrics` itself, `/readyz`).
    fn parse(metrics: &str) -> Self {
        let mut requests: BTreeMap<String, u64> = BTreeMap::new();
        for line in metrics.lines() {
            if let Some((name, count)) = request(line) {
                *requests.entry(name).or_default() += count;
            }
        }
        Self(requests)
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let earlier = |name: &String| before.0.get(name).copied().unwrap_or_default();
        let more = self.0.iter().map(|(name, count)| (name.clone(), count.saturating_sub(earlier(name))));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Verb with resource, and the count, of one line of metrics.
fn request(line: &str) -> Option<(String, u64)> {
    let (labels, value) = line.strip_prefix(METRIC)?.rsplit_once("} ")?;
    let label = |name: &str| {
        labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
    };
    let (verb, resource) = (label("verb")?, label("resource").filter(|resource| !resource.is_empty())?);
    // Prometheus may write a whole number as `1.2e+06`; formatting neither truncates nor wraps it.
    let count = format!("{:.0}", value.parse::<f64>().ok()?).parse().ok()?;
    Some(match label("subresource").filter(|subresource| !subresource.is_empty()) {
        Some(subresource) => (format!("{verb} {resource}/{subresource}"), count),
        None => (format!("{verb} {resource}"), count),
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
    fn requests_sum_over_codes_and_difference_holds_growth() {
        let requests =
            |pods| [("PATCH pods", pods), ("PUT jobsets/status", 3)].map(|(name, count)| (name.to_owned(), count));
        let after = ApiRequests::parse(AFTER);
        assert_eq!((&after.0, after.total()), (&requests(1_000_107).into(), 1_000_110));
        assert_eq!(after.since(&ApiRequests::parse(BEFORE)).0, requests(1_000_007).into());
        assert_eq!(after.since(&after), ApiRequests::default());
    }
}
