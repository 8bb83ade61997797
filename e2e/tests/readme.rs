//! The README's commands, as they stand there. The one that builds takes long.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jobset_harness::cluster::Cluster;
use jobset_harness::{install, paths};

use crate::kubelet::first::{self, Shell, read};
use crate::kubelet::shared::{installed, names_exit_of_sidecar, with_admission};

/// What the README says below this heading.
fn section<'a>(readme: &'a str, heading: &str) -> Result<&'a str> {
    let (_, section) = readme.split_once(heading).with_context(|| format!("the README has no {heading:?}"))?;
    section.split_once("\n## ").map(|(section, _)| section).context("the section does not end")
}

/// The commands that stand there in lines of their own, without the comments after them.
fn commands(section: &str) -> Vec<&str> {
    let outside_of_blocks = section.split("```").step_by(2).flat_map(str::lines);
    let lines = outside_of_blocks.filter_map(|line| line.strip_prefix("    "));
    lines.map(|line| line.split_once(" #").map_or(line, |(command, _)| command).trim_end()).collect()
}

#[test]
fn first_jobset_of_readme_is_that_of_the_page() -> Result<()> {
    let (manifest, of_page) = first::page()?;
    let readme = read("README.md")?;
    let section = section(&readme, "## A first JobSet\n")?;
    let (_, rest) = section.split_once("```yaml\n").context("the README has no manifest")?;
    let (in_readme, _) = rest.split_once("```\n").context("the manifest does not end")?;
    assert_eq!(in_readme, manifest);
    let in_readme = commands(section);
    let of_page = of_page.iter().flatten().map(String::as_str);
    let first = of_page.filter(|command| in_readme.contains(command)).take(in_readme.len());
    assert_eq!(in_readme.len(), 4);
    assert_eq!(first.collect::<Vec<_>>(), in_readme);
    Ok(())
}

/// In a cluster that has the product, they find nothing to do. The images are there, too.
#[tokio::test]
async fn kubectl_commands_of_readme_install_the_product() -> Result<()> {
    let cluster = installed().await?;
    let readme = read("README.md")?;
    let commands = commands(section(&readme, "## Install\n")?);
    let commands: Vec<_> = commands.into_iter().filter(|command| command.starts_with("kubectl ")).collect();
    assert_eq!(commands.len(), 2);
    let folder = tempfile::tempdir()?;
    let shell = Shell::new(cluster, folder.path()).await?;
    for command in commands {
        let _admission = with_admission().await;
        shell.run(&in_workspace(command)).await?;
    }
    Ok(())
}

pub(crate) fn in_workspace(command: &str) -> String {
    format!("cd '{}' && {command}", paths::workspace().display())
}

/// What else the README builds, shows and installs, on a cluster that has nothing of it. The archives go into the containerd of the
/// cluster's node. `sudo` installs into the test's folder.
#[tokio::test]
#[ignore = "five minutes once all is built: make readme"]
async fn commands_of_readme_show_install_and_run_the_product() -> Result<()> {
    let readme = read("README.md")?;
    let folder = tempfile::tempdir()?;
    let cluster = Cluster::start(1).await?;
    let shell = Shell::new(&cluster, folder.path()).await?;
    let bin = folder.path().display();
    program(folder.path(), "sudo", &format!("test \"$1 $3\" = 'install /usr/local/bin/' && install \"$2\" '{bin}'"))?;

    let [demo, test] = *commands(section(&readme, "# jobset-rs\n")?) else { anyhow::bail!("not demo and test alone") };
    ensure!((demo, test) == ("make demo", "make test"), "{demo}, {test}");
    let shown = shell.run(&in_workspace(demo)).await?;
    println!("{shown}");

    let how_to_install = section(&readme, "## Install\n")?;
    let [images, apply, rollout] = *commands(how_to_install) else {
        anyhow::bail!("not three lines: {how_to_install}")
    };
    shell.run(&in_workspace(images)).await?;
    let archives = shell.run(&in_workspace("ls -d \"$PWD\"/target/images/localhost_jobset-*_dev.tar")).await?;
    let archives: Vec<PathBuf> = archives.lines().map(PathBuf::from).collect();
    assert_eq!(archives.len(), 6, "five programs and the demo's worker: {archives:?}");
    for archive in archives {
        cluster.load_image(&archive).await?;
    }
    shell.run(&in_workspace(apply)).await?;
    shell.run(&in_workspace(rollout)).await?;

    let (_, plugin) = how_to_install.split_once("`make plugin").context("the README does not build the plugin")?;
    let (plugin, _) = plugin.split_once('`').context("its command does not end")?;
    fs::remove_file(folder.path().join("kubectl-jobset"))?;
    shell.run(&in_workspace(&format!("make plugin{plugin}"))).await?;
    ensure!(folder.path().join("kubectl-jobset").is_file(), "the plugin is not where sudo has installed it");

    let (manifest, _) = first::page()?;
    first::save(&manifest, folder.path())?;
    install::create_namespace(&cluster.client(), first::NAMESPACE).await?;
    for command in commands(section(&readme, "## A first JobSet\n")?) {
        shell.run(command).await?;
    }
    first::runs_again(&cluster, 1).await?;
    let restarts = shell.run("kubectl jobset restarts first").await?;
    assert!(names_exit_of_sidecar(&restarts, 3), "{restarts}");
    cluster.stop().await
}

/// Writes a shell script that stands for a program.
pub(crate) fn program(folder: &Path, name: &str, script: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}
