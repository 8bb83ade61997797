//! Counts requests: `jobset_api_requests_total{verb,resource,code}`.

use http::{Method, Request, Response, Uri};
use prometheus::{IntCounterVec, Registry, register_int_counter_vec_with_registry};
use tower::{Service, ServiceExt as _};

pub(super) fn register(registry: &Registry) -> prometheus::Result<IntCounterVec> {
    register_int_counter_vec_with_registry!(
        "jobset_api_requests_total",
        "Requests to the API server by verb, resource and HTTP code; the code is \"none\" where no answer came.",
        &["verb", "resource", "code"],
        registry
    )
}

/// Sends a request, and counts it by its answer.
pub(super) async fn counted<S, B, R>(
    requests: IntCounterVec,
    service: S,
    request: Request<B>,
) -> Result<S::Response, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    let (verb, resource) = describe(request.method(), request.uri());
    let answer = service.oneshot(request).await;
    let code = answer.as_ref().map_or("none".to_owned(), |answer| answer.status().as_str().to_owned());
    requests.with_label_values(&[verb, &resource, &code]).inc();
    answer
}

pub(super) fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| matches!(part, "watch" | "watch=true" | "watch=1")))
}

/// Verb and resource as in the metrics of Kubernetes.
fn describe(method: &Method, uri: &Uri) -> (&'static str, String) {
    let (resource, named) = resource(uri.path());
    let verb = match *method {
        Method::GET if is_watch(uri) => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    };
    (verb, resource)
}

/// The resource of a path, with its subresource, and whether the path names an object.
fn resource(path: &str) -> (String, bool) {
    let mut parts = path.split('/').skip_while(|part| *part != "api" && *part != "apis");
    // /api/VERSION or /apis/GROUP/VERSION
    let skipped = if parts.next() == Some("api") { 1 } else { 2 };
    let parts: Vec<&str> = parts.skip(skipped).filter(|part| !part.is_empty()).collect();
    let parts = match &parts[..] {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    match parts {
        [] => ("none".to_owned(), false),
        [resource] => ((*resource).to_owned(), false),
        [resource, _name] => ((*resource).to_owned(), true),
        [resource, _name, subresource, ..] => (format!("{resource}/{subresource}"), true),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("GET", "/api/v1/pods?labelSelector=a&limit=500", "list", "pods")]
    #[case("GET", "/api/v1/pods?&watch=true&resourceVersion=1", "watch", "pods")]
    #[case("GET", "/api/v1/namespaces/default/pods/a", "get", "pods")]
    #[case("PATCH", "/api/v1/namespaces/default/pods/a/status", "patch", "pods/status")]
    #[case("POST", "/apis/batch/v1/namespaces/default/jobs?", "create", "jobs")]
    #[case("PUT", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/a/jobsets/b/status", "update", "jobsets/status")]
    #[case("DELETE", "/apis/batch/v1/namespaces/default/jobs/a", "delete", "jobs")]
    #[case("DELETE", "/apis/batch/v1/namespaces/default/jobs", "deletecollection", "jobs")]
    #[case("GET", "/api/v1/namespaces/default", "get", "namespaces")]
    #[case("GET", "/clusters/one/apis/batch/v1/jobs", "list", "jobs")]
    #[case("GET", "/version", "list", "none")]
    fn request_has_verb_and_resource_of_kubernetes(
        #[case] method: &str,
        #[case] uri: &'static str,
        #[case] verb: &str,
        #[case] resource: &str,
    ) {
        let (found, of) = describe(&method.parse().unwrap(), &Uri::from_static(uri));
        assert_eq!((found, &of[..]), (verb, resource));
    }
}
