//! Commands of the pages, as they stand there.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use jobset_harness::Cluster;
use jobset_harness::markdown::{Block, blocks};
use jobset_harness::programs::{Helm, ensure_helm};

use crate::kubelet::first::{Shell, read};
use crate::readme::{in_workspace, program};

/// The names that the page's loop renews.
const NAMES: &str = "jobset-webhook jobset-relay jobset-controller";
const NAMESPACE: &str = "-n jobset-system";

/// A page, or a section of it.
pub(super) struct Page {
    text: String,
    blocks: Vec<Block>,
}

impl Page {
    pub(super) fn read(name: &str) -> Result<Self> {
        Self::new(read(&format!("docs/src/{name}"))?)
    }

    fn new(text: String) -> Result<Self> {
        Ok(Self { blocks: blocks(&text)?, text })
    }

    /// What stands below a heading.
    pub(super) fn section(&self, heading: &str) -> Result<Self> {
        let (_, rest) = self.text.split_once(heading).with_context(|| format!("the page has no {heading:?}"))?;
        Self::new(rest.split("\n## ").next().and_then(|it| it.split("\n### ").next()).unwrap_or(rest).to_owned())
    }

    /// The first block that has these words.
    pub(super) fn block(&self, words: &str) -> Result<&str> {
        let found = self.blocks.iter().find(|block| block.language == "console" && block.text.contains(words));
        found.map(|block| &*block.text).with_context(|| format!("no block has {words:?}"))
    }

    /// The commands of all blocks.
    pub(super) fn commands(&self) -> String {
        self.blocks.iter().filter(|block| block.language == "console").map(|block| &*block.text).collect()
    }

    /// The command in a line of text that begins so.
    pub(super) fn inline(&self, words: &str) -> Result<&str> {
        let (_, rest) = self.text.split_once(&format!("`{words}")).with_context(|| format!("no text has {words:?}"))?;
        let length = rest.find('`').with_context(|| format!("{words:?} does not end"))?;
        let begin = self.text.len() - rest.len();
        Ok(&self.text[begin - words.len()..begin + length])
    }
}

/// A shell in the folder of the project, with `kubectl` and `helm`.
pub(super) struct Commands<'a> {
    shell: Shell<'a>,
    folder: &'a Path,
}

impl<'a> Commands<'a> {
    pub(super) async fn new(cluster: &Cluster, folder: &'a Path) -> Result<Self> {
        symlink(tokio::task::spawn_blocking(|| ensure_helm(Helm::V4)).await??, folder.join("helm"))?;
        Ok(Self { shell: Shell::new(cluster, folder).await?, folder })
    }

    /// Runs all commands, each of which must succeed.
    pub(super) async fn run(&self, commands: &str) -> Result<()> {
        println!("{}", self.shell.run(&format!("set -e; {}", in_workspace(commands))).await?);
        Ok(())
    }

    /// `cmctl renew` by the loop of the page, which does the same. The module proxy does not have cmctl.
    pub(super) fn stand_in_for_cmctl(&self, renew: &str) -> Result<()> {
        ensure!(renew.contains(NAMES) && renew.contains(NAMESPACE), "the page renews others:\n{renew}");
        let renew = renew.replace(NAMES, "$names").replace(NAMESPACE, "-n \"$2\"");
        let names = "while [ \"$1\" != -n ]; do names=\"$names $1\"; shift; done";
        program(self.folder, "cmctl", &format!("set -e; test \"$1\" = renew; shift; {names}\n{renew}"))
    }
}
