//! The holder's end of a cluster's owner: starts the process, and holds it by the pipe to its standard input.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::layout::{Options, Ready};
use crate::programs::beside;

/// The process that owns a cluster, held by the pipe to its standard input.
pub(super) struct Owner {
    child: Child,
    stdin: ChildStdin,
}

impl Owner {
    /// Starts the owner of a cluster in `dir` and waits until it is ready or has given up.
    pub(super) fn start(options: &Options, dir: &Path) -> Result<(Self, Ready)> {
        let mut child = Command::new(beside("e2e-cluster")?)
            .arg("up")
            .arg("--dir")
            .arg(dir)
            .args(arguments(options))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // Ctrl-C at the terminal ends the holder; the owner sees that, and takes the cluster down in order.
            .process_group(0)
            .spawn()
            .context("cannot start the cluster's owner")?;
        let stdin = child.stdin.take().context("the owner has no standard input")?;
        let stdout = child.stdout.take().context("the owner has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the cluster's owner")?;
        if line.is_empty() {
            let status = child.wait().context("cannot wait for the cluster's owner")?;
            bail!("the cluster in {} did not start ({status}); its owner says above why", dir.display());
        }
        let ready = serde_json::from_str(&line).context("the cluster's owner does not say that it is ready")?;
        Ok((Self { child, stdin }, ready))
    }

    /// Takes the cluster down and removes its folder.
    pub(super) fn end(mut self) -> Result<()> {
        // An owner that is gone already is seen by its exit status.
        let _ = writeln!(self.stdin, "{}", super::REMOVE);
        drop(self.stdin);
        let status = self.child.wait().context("cannot wait for the cluster's owner")?;
        if status.success() { Ok(()) } else { bail!("the cluster's owner ended with {status}") }
    }
}

/// The options as arguments of `e2e-cluster up`.
fn arguments(options: &Options) -> Vec<String> {
    // All of them: one that is forgotten makes another cluster than was asked for.
    let Options {
        nodes,
        node_names,
        server_names,
        audit,
        api_server_args,
        controller_manager_args,
        scheduler_args,
        kubelet_args,
        dns_cache,
        ipv6,
    } = options;
    let mut args = vec![format!("--nodes={nodes}"), format!("--dns-cache={dns_cache}")];
    for (flag, is_set) in [("--audit", audit), ("--ipv6", ipv6)] {
        args.extend(is_set.then(|| flag.to_owned()));
    }
    for (flag, values) in [
        ("node-name", node_names),
        ("server-name", server_names),
        ("api-server-arg", api_server_args),
        ("controller-manager-arg", controller_manager_args),
        ("scheduler-arg", scheduler_args),
        ("kubelet-arg", kubelet_args),
    ] {
        args.extend(values.iter().map(|value| format!("--{flag}={value}")));
    }
    args
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Up {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn owner_reads_the_options_that_its_holder_has() {
        let asked = Options {
            nodes: 2,
            node_names: vec!["a".into(), "b".into()],
            server_names: vec!["api.example.com".into()],
            audit: true,
            api_server_args: vec!["--v=2".into()],
            controller_manager_args: vec!["--v=3".into()],
            scheduler_args: vec!["--v=6".into()],
            kubelet_args: vec!["--v=4".into(), "--v=5".into()],
            dns_cache: 30,
            ipv6: true,
        };
        let words = ["up".to_owned()].into_iter().chain(arguments(&asked));
        assert_eq!(Up::parse_from(words).options, asked);
    }
}
