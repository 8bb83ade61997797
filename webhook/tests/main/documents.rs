//! The manifests of the documentation: every fenced block of YAML in a README.md of the workspace and in a page of the site is a
//! complete object, and is admitted as it stands there. What is none is written as text.
//!
//! Manifests of supervised workers get the one warning that nobody can avoid: the worker shares the token of its agent.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use jobset_harness::markdown::{Block, blocks};
use jobset_harness::paths;
use kube::client::Body;
use serde::Deserialize as _;
use serde_json::Value;

use crate::answer::Writes;
use crate::cluster::Plane;

/// Folders of the workspace that are none of its own.
const FOREIGN: [&str; 3] = ["target", ".git", "node_modules"];
/// The warning that every JobSet with a supervised worker gets.
const SHARED_TOKEN: &str = "the worker can use its agent's token";

/// An object, and where it stands.
struct Manifest {
    place: String,
    object: Value,
}

/// API groups of other projects, and of Kubernetes 1.37 with its gates, which this API server does not serve.
const OTHERS: [&str; 3] = ["kueue.x-k8s.io/", "trainer.kubeflow.org/", "scheduling.k8s.io/v1beta1"];

/// Every README.md below the folder, and every page of the site.
fn documents(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        // A link leads to what is another's, or to where the search comes by itself.
        if entry.file_type()?.is_dir() {
            if FOREIGN.iter().all(|foreign| name != *foreign) {
                found.extend(documents(&path)?);
            }
        } else if name == "README.md" || folder.ends_with("docs/src") && path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The objects of the documents below this folder, in their order.
fn manifests(root: &Path) -> Result<Vec<Manifest>> {
    let mut found = Vec::new();
    for path in documents(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let blocks = blocks(&std::fs::read_to_string(&path)?).context(name.clone())?;
        for Block { line, text, .. } in blocks.into_iter().filter(Block::is_yaml) {
            let place = format!("{name}:{line}");
            for document in serde_yaml_ng::Deserializer::from_str(&text) {
                let object = Value::deserialize(document).with_context(|| place.clone())?;
                let is_object = [&object["apiVersion"], &object["kind"], &object["metadata"]["name"]]
                    .iter()
                    .all(|it| !it.is_null());
                ensure!(is_object, "{place}: no complete object; mark it as text, not as yaml");
                let version = object["apiVersion"].as_str().unwrap_or_default();
                if !OTHERS.iter().any(|group| version.starts_with(group)) {
                    found.push(Manifest { place: place.clone(), object });
                }
            }
        }
    }
    Ok(found)
}

/// Where objects of this kind are created in the namespace `default`.
fn collection(object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    Ok(match (object["apiVersion"].as_str().unwrap_or_default(), kind) {
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => {
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings".to_owned()
        }
        ("networking.k8s.io/v1", "NetworkPolicy") => {
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies".to_owned()
        }
        ("rbac.authorization.k8s.io/v1", "Role") => {
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles".to_owned()
        }
        ("policy/v1", "PodDisruptionBudget") => "/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(),
        ("v1", "ConfigMap") => "/api/v1/namespaces/default/configmaps".to_owned(),
        ("v1", "ServiceAccount") => "/api/v1/namespaces/default/serviceaccounts".to_owned(),
        (version, kind) => bail!("no rule for {version} {kind}: add it to documents.rs"),
    })
}

/// Has the API server decide about the object, without storing it. What is warned of comes out.
async fn submit(writes: &Writes, object: &Value) -> Result<Vec<String>> {
    if object["kind"] == "JobSet" {
        let answer = writes.dry_run(object).await?;
        ensure!(answer.is_accepted(), "refused: {}", answer.object["message"].as_str().unwrap_or_default());
        return Ok(answer.warnings);
    }
    let request = Request::post(format!("{}?fieldValidation=Strict&dryRun=All", collection(object)?));
    let request = request.header(CONTENT_TYPE, "application/json").body(Body::from(object.to_string().into_bytes()))?;
    let response = writes.0.send(request).await?;
    let status = response.status();
    let body = response.into_body().collect_bytes().await?;
    ensure!(status.is_success(), "refused: {}", String::from_utf8_lossy(&body));
    Ok(Vec::new())
}

#[tokio::test]
async fn manifests_of_documentation_are_admitted_without_avoidable_warnings() -> Result<()> {
    let manifests = manifests(&paths::workspace())?;
    let jobsets = manifests.iter().filter(|it| it.object["kind"] == "JobSet").count();
    ensure!(jobsets > 0, "the documentation has no JobSet in a fenced block of yaml");
    let writes = Writes(Plane::shared().await?.client());
    let mut wrong = Vec::new();
    for Manifest { place, object } in &manifests {
        match submit(&writes, object).await {
            Ok(warnings) => {
                let avoidable = warnings.iter().filter(|warning| !warning.contains(SHARED_TOKEN));
                wrong.extend(avoidable.map(|warning| format!("{place}: warning: {warning}")));
            }
            Err(error) => wrong.push(format!("{place}: {error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{} of {} manifests:\n{}", wrong.len(), manifests.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn block_without_object_is_named_with_file_and_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("part"))?;
    let error = |text: &str| -> Result<String> {
        std::fs::write(folder.path().join("part/README.md"), text)?;
        Ok(manifests(folder.path()).err().map(|error| format!("{error:#}")).unwrap_or_default())
    };
    let object = "```yaml\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n```\n";
    assert_eq!(error(object)?, "");
    let partial = format!("{object}\n```yaml\nspec: {{}}\n```\n");
    assert_eq!(error(&partial)?, "part/README.md:7: no complete object; mark it as text, not as yaml");
    assert!(error("\n```yaml\na: [\n```\n")?.starts_with("part/README.md:2: "));
    Ok(())
}
