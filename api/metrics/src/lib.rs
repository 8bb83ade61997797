//! The metrics endpoint of the controller and of the admission service: exposition, build information and process
//! metrics. The programs register all other metrics.
//!
//! It is a separate crate, so that programs that only need `jobset-api` do not compile its dependencies.

mod family;
mod process;
mod series;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{IntGauge, Opts, Registry, TEXT_FORMAT, TextEncoder};

pub use family::{Family, register_families};
pub use series::remove_series;

pub const PATH: &str = "/metrics";

/// The routes of the metrics endpoint. Registers the process metrics, and `jobset_build_info` with this version.
pub fn routes(registry: Registry, version: &str) -> prometheus::Result<Router> {
    let options = Opts::new("jobset_build_info", "1, with the version of this program as a label.");
    let build = IntGauge::with_opts(options.const_label("version", version))?;
    build.set(1);
    registry.register(Box::new(build))?;
    process::register(&registry)?;
    Ok(Router::new().route(PATH, get(move || std::future::ready(exposition(&registry)))))
}

fn exposition(registry: &Registry) -> Response {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn metrics_endpoint_serves_build_and_process_as_prometheus_text() {
        let routes = routes(Registry::new(), "1.2.3").unwrap();
        let answer = routes.oneshot(Request::get(PATH).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/plain; version=0.0.4");
        let text = String::from_utf8(to_bytes(answer.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap();
        let value = |series: &str| -> f64 {
            let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            value.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
        };
        assert_eq!(value(r#"jobset_build_info{version="1.2.3"}"#).to_bits(), 1.0_f64.to_bits());
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") < value("process_max_fds"));
        assert!(value("process_threads") >= 1.0);
        let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
            - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{age}");
        assert!((0.0..3600.0).contains(&value("process_cpu_seconds_total")));
    }
}
