//! `e2e-cluster`: a real Kubernetes on this machine, from the command line; also the owner process behind the handles of
//! the library.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use jobset_harness::cluster::{self, Ending, Options, Ready};
use jobset_harness::deps;
use jobset_harness::images::Repository;
use jobset_harness::install;
use jobset_harness::programs::{self, Architecture, Helm};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "A real Kubernetes on this machine, for tests and for the demo")]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Prints the Debian packages that are missing, or installs them.
    Deps {
        /// Runs apt-get.
        #[arg(long)]
        install: bool,
    },
    /// Builds the Go programs.
    Programs {
        /// Builds only what this needs. Default: what the tests need.
        #[arg(long)]
        set: Option<programs::Set>,
    },
    /// Builds agent, controller and relay of the commit that those of now have to work with.
    Older,
    /// Builds the images of controller, webhook, agent and the demo's worker, as OCI archives.
    Images {
        /// What they run on. Default: this machine.
        #[arg(long)]
        architecture: Option<Architecture>,
        /// Their tag. Default: that of the chart.
        #[arg(long)]
        tag: Option<String>,
    },
    /// Runs a cluster until standard input ends, or a signal comes; prints one line of JSON when it is ready.
    Up(Up),
    /// Ends a cluster and removes its folder.
    Down {
        /// The folder of the cluster.
        #[arg(long)]
        dir: PathBuf,
    },
    /// The first process of a cluster's namespaces.
    #[command(hide = true)]
    Supervise { socket: PathBuf },
}

#[derive(Args)]
struct Up {
    #[command(flatten)]
    options: Options,
    /// The folder of its state and logs (default: a new one below target/clusters).
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Returns when the cluster is ready, and leaves it running until `down`.
    #[arg(long)]
    detach: bool,
    /// Is the process that `--detach` leaves running.
    #[arg(long, hide = true)]
    background: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be left to read it.
            let _ = writeln!(std::io::stderr(), "e2e-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<()> {
    match action {
        Action::Deps { install: true } => deps::install(),
        Action::Deps { install: false } => {
            println!("{}", deps::missing(programs::Set::Cluster).join(" "));
            Ok(())
        }
        Action::Programs { set: Some(set) } => programs::ensure(set).map(|_| ()),
        Action::Programs { set: None } => {
            programs::ensure(programs::Set::Cluster)?;
            [Helm::V3, Helm::V4].into_iter().try_for_each(|version| programs::ensure_helm(version).map(|_| ()))?;
            programs::ensure_kube_state_metrics().map(|_| ())
        }
        Action::Older => block_on(async { programs::older_binaries().await.map(drop) }),
        Action::Images { architecture, tag } => block_on(images(architecture, tag.as_deref())),
        Action::Up(up) if up.detach => detach(),
        Action::Up(up) => block_on(own(up)),
        Action::Down { dir } => cluster::down(&dir),
        Action::Supervise { socket } => block_on(cluster::supervise(&socket)),
    }
}

async fn images(architecture: Option<Architecture>, tag: Option<&str>) -> Result<()> {
    let names = tag.map_or_else(|| Ok(Repository::default()), Repository::local)?;
    let architecture = architecture.map_or_else(Architecture::of_host, Ok)?;
    let binaries = programs::shipped_binaries(architecture).await?;
    let mut images = install::product_images(&binaries, architecture, &names)?;
    images.push(install::worker_image(&binaries, architecture, &names)?);
    for image in images {
        println!("{}", image.display());
    }
    println!(
        "Load them with `kind load image-archive FILE`, `ctr -n k8s.io images import FILE`, or `skopeo copy oci-archive:FILE \
         docker://REGISTRY/NAME:TAG`."
    );
    Ok(())
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let outcome = runtime.block_on(work);
    // A thread that still reads standard input must not hold up the end.
    runtime.shutdown_background();
    outcome
}

async fn own(up: Up) -> Result<()> {
    if up.background {
        rustix::process::setsid().context("cannot leave the terminal")?;
    }
    let dir = match up.dir {
        Some(dir) => std::path::absolute(dir).context("--dir is not a path")?,
        None => cluster::new_dir(),
    };
    cluster::own(up.options, dir, ending(up.background)?, announce).await
}

/// Prints the line that whoever started this waits for.
fn announce(ready: &Ready) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(ready)?).context("the program that waits for the cluster has gone")?;
    stdout.flush().context("the program that waits for the cluster has gone")
}

/// Waits for a signal or, unless in the background, for the holder to end.
fn ending(background: bool) -> Result<impl Future<Output = Ending>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => Ending::Remove,
            _ = interrupt.recv() => Ending::Remove,
            _ = hangup.recv(), if !background => Ending::Remove,
            ending = holder(), if !background => ending,
        }
    })
}

async fn holder() -> Ending {
    let mut stdin = tokio::io::stdin();
    let mut word = Vec::new();
    let line = format!("{}\n", cluster::REMOVE);
    let read = (&mut stdin).take(line.len() as u64).read_to_end(&mut word).await;
    if read.is_ok() && word == line.as_bytes() {
        return Ending::Remove;
    }
    // What else comes is of no use, however much it is; its end is the holder's.
    let _ = tokio::io::copy(&mut stdin, &mut tokio::io::sink()).await;
    Ending::KeepLogs
}

/// Starts this program again with the same arguments, but in the background, and waits until the cluster is ready.
fn detach() -> Result<()> {
    let args = std::env::args_os().skip(1).filter(|arg| arg != "--detach");
    let mut child = Command::new(std::env::current_exe().context("cannot find the own program")?)
        .args(args)
        .arg("--background")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Its later words would hold open what may be a pipe: they are passed on only as long as this runs.
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the cluster's owner")?;
    let stdout = child.stdout.take().context("the owner has no standard output")?;
    let stderr = child.stderr.take().context("the owner has no standard error")?;
    let progress = std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            eprintln!("{line}");
        }
    });
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("cannot read from the cluster's owner")?;
    if line.is_empty() {
        let status = child.wait().context("cannot wait for the cluster's owner")?;
        // What it said last is the reason.
        let _ = progress.join();
        bail!("the cluster did not start ({status})");
    }
    print!("{line}");
    Ok(())
}
