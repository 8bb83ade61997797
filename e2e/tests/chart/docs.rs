//! The commands of the docs for whoever installs the product: Helm takes their values, and they remove what they must.

use anyhow::{Context, Result, ensure};
use jobset_api::gates::Gates;
use jobset_harness::chart::Chart;
use jobset_harness::markdown::blocks;
use jobset_harness::paths;
use jobset_harness::programs::Helm;
use serde_json::Value;
use tokio::fs;

use super::render::{NAMESPACE, render};

/// What a user puts in place of the new tag.
pub(super) const NEW: &str = "next";

/// A command of Helm that installs or upgrades.
pub(super) struct HelmCommand {
    /// Where it stands.
    place: String,
    pub(super) words: Vec<String>,
}

impl HelmCommand {
    /// Its values, each after `--set`.
    fn values(&self) -> Vec<&str> {
        let pairs = self.words.windows(2).filter(|pair| pair[0] == "--set");
        pairs.flatten().map(String::as_str).collect()
    }
}

/// All of a page, with what a user puts in their place: a tag, a CA.
pub(super) async fn helm_commands(page: &str) -> Result<Vec<HelmCommand>> {
    let text = fs::read_to_string(paths::workspace().join("docs/src").join(page)).await?;
    let mut commands = Vec::new();
    for block in blocks(&text)?.into_iter().filter(|block| block.language == "console") {
        let lines = block
            .text
            .replace("\\\n", " ")
            .replace("\"$(base64 -w0 ca.crt)\"", "Q0E=")
            .replace("=NEW", &format!("={NEW}"));
        for line in lines.lines() {
            let Some(words) = line.strip_prefix("helm ") else { continue };
            if words.starts_with("install ") || words.starts_with("upgrade ") {
                let words = words.split_whitespace().map(str::to_owned).collect();
                commands.push(HelmCommand { place: format!("{page}:{}", block.line), words });
            }
        }
    }
    Ok(commands)
}

#[tokio::test]
async fn values_of_the_docs_commands_are_rendered() -> Result<()> {
    let chart = Chart::new(Helm::V4).await?;
    let mut pages = fs::read_dir(paths::workspace().join("docs/src")).await?;
    let mut seen = 0;
    while let Some(page) = pages.next_entry().await? {
        if page.path().extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let name = page.file_name().to_string_lossy().into_owned();
        for command in helm_commands(&name).await? {
            ensure!(command.words[1..3] == ["jobset", "deploy/chart"], "{}: {:?}", command.place, command.words);
            chart.template(NAMESPACE, &command.values()).await.context(command.place)?;
            seen += 1;
        }
    }
    ensure!(seen > 9, "only {seen} commands of Helm are in the docs");
    Ok(())
}

/// AgentStream is switched by `stream.enabled`, which brings the relays.
#[tokio::test]
async fn chart_has_all_feature_gates_but_that_of_the_stream() -> Result<()> {
    let schema = fs::read(Chart::folder().join("values.schema.json")).await?;
    let schema: Value = serde_json::from_slice(&schema)?;
    let gates = schema["properties"]["featureGates"]["properties"].as_object().context("the schema has no gates")?;
    let all = Gates::default().to_string();
    let names = all.split(',').filter_map(|gate| gate.split_once('=')).map(|(name, _)| name);
    let mut names: Vec<&str> = names.filter(|name| *name != "AgentStream").collect();
    names.sort_unstable();
    let mut in_chart: Vec<&str> = gates.keys().map(String::as_str).collect();
    in_chart.sort_unstable();
    assert_eq!(in_chart, names);
    Ok(())
}

/// `kubectl delete` by label, for `kubectl delete -k` would delete the CRD, and all JobSets with it.
#[tokio::test]
async fn commands_of_the_docs_remove_all_kinds_but_the_crd() -> Result<()> {
    let page = fs::read_to_string(paths::workspace().join("docs/src/install.md")).await?;
    let (_, remove) = page.split_once("\n## Uninstall\n").context("no section Uninstall")?;
    let blocks = blocks(remove)?;
    let commands = blocks.iter().filter(|block| block.language == "console").flat_map(|block| block.text.lines());
    let named: Vec<&str> = commands.flat_map(|line| line.split([' ', ','])).collect();
    let objects = render(NAMESPACE, &[]).await?;
    for ((kind, ..), object) in &objects {
        let removed = named.contains(&&*kind.to_lowercase());
        assert_eq!(removed, kind != "CustomResourceDefinition", "{kind}");
        let labels = &object["metadata"]["labels"];
        assert!(!removed || labels["app.kubernetes.io/part-of"] == "jobset", "{kind}: {labels}");
    }
    Ok(())
}
