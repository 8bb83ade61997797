//! A real Prometheus beside a cluster's own programs: it scrapes controller, webhook, certs and relays behind their
//! Services, and answers queries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http::{Request, Uri};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::Handle;
use crate::install::kubectl;
use crate::programs::{locked, run};
use crate::progress::progress;
use crate::wait;

const PORT: u16 = 9090;
const LIMIT: Duration = Duration::from_mins(2);
const SERVICES: [&str; 4] = [CONTROLLER, "jobset-webhook-metrics", "jobset-certs-metrics", "jobset-relay-metrics"];
/// The one that asks for a token.
const CONTROLLER: &str = "jobset-controller-metrics";
/// How often it scrapes. A restart in place takes seconds.
const INTERVAL: &str = "1s";

/// The programs of Debian's package.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Unpacks Debian's package below the target folder. It is not installed: that would start a service.
    pub fn ensure() -> Result<Self> {
        let (root, _lock) = locked("debian")?;
        let folder = root.join("prometheus");
        let programs = Self { folder: folder.join("usr/bin") };
        if programs.prometheus().exists() {
            return Ok(programs);
        }
        progress("unpacking Debian's package prometheus");
        let fresh = root.join("prometheus.new");
        let _ = std::fs::remove_dir_all(&fresh);
        std::fs::create_dir_all(&fresh)?;
        run(Command::new("apt-get").args(["download", "prometheus"]).current_dir(&fresh))?;
        let package = std::fs::read_dir(&fresh)?.flatten().next().context("apt-get downloaded nothing")?.path();
        run(Command::new("dpkg").arg("--extract").arg(&package).arg(&fresh))?;
        std::fs::remove_file(package)?;
        std::fs::rename(&fresh, &folder).with_context(|| format!("cannot move it to {}", folder.display()))?;
        Ok(programs)
    }

    pub fn prometheus(&self) -> PathBuf {
        self.folder.join("prometheus")
    }

    /// Checks a file of rules as `promtool check rules` does.
    pub fn check_rules(&self, file: &Path) -> Result<()> {
        run(Command::new(self.folder.join("promtool")).args(["check", "rules", "--lint=all", "--lint-fatal"]).arg(file))
    }

    /// Carries out a file of tests as `promtool test rules` does.
    pub fn test_rules(&self, file: &Path) -> Result<()> {
        run(Command::new(self.folder.join("promtool")).args(["test", "rules"]).arg(file))
    }
}

/// Labels of a series, and its value.
pub type Sample = (BTreeMap<String, String>, f64);

/// Labels of a series, and its values by time, in seconds since 1970.
pub type Series = (BTreeMap<String, String>, Vec<(f64, f64)>);

/// A running Prometheus. It ends with its cluster.
pub struct Prometheus {
    client: Client,
}

impl Prometheus {
    /// Starts it, and waits until it has found all programs in this namespace. It scrapes with a ServiceAccount of
    /// its own, to which the ClusterRole for that is bound.
    pub async fn start(cluster: &Handle, namespace: &str, rules: &Path) -> Result<Self> {
        let programs = tokio::task::spawn_blocking(Programs::ensure).await??;
        let folder = cluster.dir().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let config = folder.join("prometheus.json");
        let targets = targets(cluster.client(), namespace).await?;
        let token = folder.join("token");
        std::fs::write(&token, self_as_scraper(cluster, namespace).await?)?;
        std::fs::write(&config, configuration(&targets, rules, &token).to_string())?;
        let server: Uri = cluster.ready().server.parse()?;
        let address = format!("{}:{PORT}", server.host().context("the API server's URL has no host")?);
        let args = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        cluster.start_program("prometheus", &programs.prometheus(), &args, &[]).await?;
        let client = Client::try_from(Config::new(format!("http://{address}").parse()?))?;
        let prometheus = Self { client };
        wait::until(
            LIMIT,
            "Prometheus to scrape two controllers, webhooks and relays, and the one that issues certificates",
            || async {
                let up = prometheus.query("sum(up)").await.unwrap_or_default();
                Ok(up.first().is_some_and(|(_, up)| *up >= 7.0).then_some(()))
            },
        )
        .await?;
        Ok(prometheus)
    }

    /// The present value of an expression, by series; a scalar has no labels.
    pub async fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        let data = self.ask(&format!("/api/v1/query?query={}", encoded(expression))).await?;
        match data {
            Data::Vector(all) => all.into_iter().map(|it| Ok((it.metric, number(&it.value)?.1))).collect(),
            Data::Scalar(value) => Ok(vec![(BTreeMap::new(), number(&value)?.1)]),
            Data::Matrix(_) => bail!("{expression} is a range"),
        }
    }

    /// The values of an expression from one time to another, in seconds since 1970.
    pub async fn query_range(&self, expression: &str, (from, to): (f64, f64), step: f64) -> Result<Vec<Series>> {
        let query = encoded(expression);
        let path = format!("/api/v1/query_range?query={query}&start={from:.3}&end={to:.3}&step={step}");
        let Data::Matrix(all) = self.ask(&path).await? else { bail!("{expression} is no range") };
        all.into_iter().map(|it| Ok((it.metric, it.values.iter().map(number).collect::<Result<_>>()?))).collect()
    }

    /// Names of the alerting rules that it has loaded, and whether each could be evaluated.
    pub async fn rules(&self) -> Result<BTreeMap<String, String>> {
        let answer: Value = self.client.request(Request::get("/api/v1/rules").body(Vec::new())?).await?;
        let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(rules.map(|rule| (text(&rule["name"]), text(&rule["health"]))).collect())
    }

    async fn ask(&self, path: &str) -> Result<Data> {
        let answer: Answer = self.client.request(Request::get(path).body(Vec::new())?).await?;
        Ok(answer.data)
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", tag = "resultType", content = "result")]
enum Data {
    Vector(Vec<AtOnce>),
    Matrix(Vec<OverTime>),
    Scalar((f64, String)),
}

#[derive(Deserialize)]
struct AtOnce {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

#[derive(Deserialize)]
struct OverTime {
    metric: BTreeMap<String, String>,
    values: Vec<(f64, String)>,
}

fn number((at, value): &(f64, String)) -> Result<(f64, f64)> {
    Ok((*at, value.parse().map_err(|_| anyhow!("{value} is no number"))?))
}

fn encoded(expression: &str) -> String {
    form_urlencoded::byte_serialize(expression.as_bytes()).collect()
}

/// What it scrapes: the Pods behind the Services for the metrics, as they are now. Debian's build cannot ask Kubernetes.
async fn targets(client: Client, namespace: &str) -> Result<Vec<(&'static str, Value)>> {
    let slices: Api<EndpointSlice> = Api::namespaced(client, namespace);
    let mut targets = Vec::new();
    for service in SERVICES {
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        for slice in slices.list(&of_service).await? {
            let ports = slice.ports.unwrap_or_default();
            let port = ports.first().and_then(|port| port.port).context("a slice has no port")?;
            for endpoint in slice.endpoints.unwrap_or_default() {
                let pod = endpoint.target_ref.and_then(|pod| pod.name).unwrap_or_default();
                let addresses = endpoint.addresses.iter().map(|address| format!("{address}:{port}"));
                let addresses: Vec<String> = addresses.collect();
                let labels = json!({"job": service, "pod": pod, "namespace": namespace});
                targets.push((service, json!({"targets": addresses, "labels": labels})));
            }
        }
    }
    Ok(targets)
}

fn configuration(targets: &[(&str, Value)], rules: &Path, token: &Path) -> Value {
    let scraped = SERVICES.map(|service| {
        let of_service: Vec<_> = targets.iter().filter(|(of, _)| *of == service).map(|(_, it)| it).collect();
        // A metric's own namespace is that of its JobSets.
        let mut config = json!({"job_name": service, "honor_labels": true, "static_configs": of_service});
        if service == CONTROLLER {
            config["scheme"] = json!("https");
            config["tls_config"] = json!({"insecure_skip_verify": true});
            config["authorization"] = json!({"credentials_file": token});
        }
        config
    });
    json!({
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": [rules],
        "scrape_configs": scraped,
    })
}

/// A token of a ServiceAccount that may read the controller's metrics.
async fn self_as_scraper(cluster: &Handle, namespace: &str) -> Result<Vec<u8>> {
    let account = format!("--serviceaccount={namespace}:prometheus");
    let role = "--clusterrole=jobset-metrics-reader";
    kubectl(cluster, &["create", "serviceaccount", "prometheus", "-n", namespace]).await?;
    kubectl(cluster, &["create", "clusterrolebinding", "jobset-prometheus", role, &account]).await?;
    let token = kubectl(cluster, &["create", "token", "prometheus", "-n", namespace, "--duration=24h"]).await?;
    Ok(token.stdout.trim_ascii().to_vec())
}
