//! Runs a command and decides its exit code.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{
    ChangeArgs, Cli, Command, GlobalArgs, GoodputArgs, JobSetsArgs, LogsArgs, NamedArgs, NodesArgs, OutputFormat,
    RestartArgs, StatusArgs, UiArgs, ValidateArgs, WaitArgs,
};
use crate::change::{ChangeReport, Suspension, follow_restart, follow_suspension};
use crate::cluster::{ChangeStream, Cluster, WatchScope, connect};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{ProgressLine, Report, Screen, View, rendered};
use crate::validate::{AdmissionSettings, Outcome};
use crate::{completion, explain, goodput, logs, nodes, restarts, status, ui, validate, wait};

pub fn run(cli: Cli) -> Result<Exit, Error> {
    let screen = Screen::new(cli.global.color);
    match cli.command {
        Command::Validate(args) => validate(&cli.global, &args, screen),
        Command::Completion { shell } => screen.print(&completion::script(shell)?).map(|()| Exit::Ok),
        Command::Complete { words } => screen.print(&completion::answer_kubectl(&words)).map(|()| Exit::Ok),
        Command::Status(args) => wait_for(status(&cli.global, args, screen)),
        Command::Restarts(args) => wait_for(restarts(&cli.global, args, screen)),
        Command::Goodput(args) => wait_for(show_goodput(&cli.global, args, screen)),
        Command::Explain(args) => wait_for(explain(&cli.global, args, screen)),
        Command::Nodes(args) => wait_for(list_nodes(&cli.global, args, screen)),
        Command::Wait(args) => wait_for(wait(&cli.global, args, screen)),
        Command::Restart(args) => wait_for(restart(&cli.global, args, screen)),
        Command::Logs(args) => wait_for(show_logs(&cli.global, &args, screen)),
        Command::Suspend(args) => wait_for(suspend(&cli.global, args, Suspension::Suspend, screen)),
        Command::Resume(args) => wait_for(suspend(&cli.global, args, Suspension::Resume, screen)),
        Command::Ui(args) => wait_for(ui(&cli.global, &args, screen)),
    }
}

fn wait_for(command: impl Future<Output = Result<Exit, Error>>) -> Result<Exit, Error> {
    Builder::new_current_thread().enable_all().build().map_err(Error::Write)?.block_on(command)
}

async fn status(global: &GlobalArgs, args: StatusArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let shown = Presenter { screen, output: global.output, pods: args.pods, watch: args.watch };
    let JobSetsArgs { name, all_namespaces, selector } = args.jobsets;
    let Some(name) = name else {
        let namespace = (!all_namespaces).then_some(cluster.namespace.as_str());
        let list = async || {
            let selected = cluster.jobsets(all_namespaces, selector.as_deref());
            let (jobsets, leader) = tokio::join!(selected, cluster.leader());
            Ok(status::list(&jobsets?, namespace, leader))
        };
        shown.show(&cluster, &WatchScope::List { all_namespaces }, list).await?;
        return Ok(Exit::Ok);
    };
    let tree = async || {
        let jobset = cluster.jobset(&name).await?;
        let (jobs, pods, leader) = tokio::join!(cluster.jobs(&name), cluster.pods(&name), cluster.leader());
        Ok(status::report(&jobset, &jobs?, &pods?, leader))
    };
    shown.show(&cluster, &WatchScope::Tree(name.clone()), tree).await?;
    Ok(Exit::Ok)
}

async fn restarts(global: &GlobalArgs, args: NamedArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let shown = Presenter { screen, output: global.output, pods: false, watch: args.watch };
    let jobset = cluster.jobset(&args.name).await?;
    let fetch = async || {
        let jobset = cluster.jobset(&args.name).await?;
        let events = cluster.restart_events(&jobset).await?;
        Ok(restarts::report(&jobset, events))
    };
    shown.show(&cluster, &WatchScope::Events(Box::new(jobset)), fetch).await?;
    Ok(Exit::Ok)
}

async fn show_goodput(global: &GlobalArgs, args: GoodputArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let shown = Presenter { screen, output: global.output, pods: false, watch: args.watch };
    let JobSetsArgs { name, all_namespaces, selector } = args.jobsets;
    let namespace = (!all_namespaces).then_some(cluster.namespace.as_str());
    let fetch = async || {
        let jobsets = match &name {
            Some(name) => vec![cluster.jobset(name).await?],
            None => cluster.jobsets(all_namespaces, selector.as_deref()).await?,
        };
        Ok(goodput::report(&jobsets, namespace, Timestamp::now()))
    };
    shown.show(&cluster, &WatchScope::List { all_namespaces }, fetch).await?;
    Ok(Exit::Ok)
}

async fn explain(global: &GlobalArgs, args: NamedArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let shown = Presenter { screen, output: global.output, pods: false, watch: args.watch };
    let fetch = async || Ok(explain::explain(cluster.facts(&args.name).await?));
    let last = shown.show(&cluster, &WatchScope::Tree(args.name.clone()), fetch).await?;
    Ok(if last.runs { Exit::Ok } else { Exit::No })
}

async fn list_nodes(global: &GlobalArgs, args: NodesArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let shown = Presenter { screen, output: global.output, pods: false, watch: args.watch };
    let all_namespaces = args.all_namespaces;
    let namespace = (!all_namespaces).then_some(cluster.namespace.as_str());
    let fetch = async || {
        let selected = cluster.jobsets(all_namespaces, args.selector.as_deref());
        let (jobsets, all) = tokio::join!(selected, cluster.nodes());
        Ok(nodes::report(&jobsets?, all.as_deref(), namespace, Timestamp::now()))
    };
    shown.show(&cluster, &WatchScope::List { all_namespaces }, fetch).await?;
    Ok(Exit::Ok)
}

async fn wait(global: &GlobalArgs, args: WaitArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let mut line = ProgressLine::new(global.color);
    let WaitArgs { name, goal, timeout } = args;
    let ended = until_interrupt(wait::follow(&cluster, &name, goal, timeout, &mut line)).await;
    let view = View { now: Timestamp::now(), wide: false, pods: false };
    line.end(&ended.as_ref().map(|report| report.text(&view)).unwrap_or_default());
    let report = ended?;
    if matches!(global.output, OutputFormat::Json | OutputFormat::Yaml) {
        screen.print(&rendered(&report, global.output, &view)?)?;
    }
    Ok(report.outcome.exit())
}

async fn restart(global: &GlobalArgs, args: RestartArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let mut line = ProgressLine::new(global.color);
    let ended = until_interrupt(Box::pin(follow_restart(&cluster, &args, &mut line))).await;
    end_change(global, &mut line, ended, screen)
}

async fn show_logs(global: &GlobalArgs, args: &LogsArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let mut line = ProgressLine::new(global.color);
    until_interrupt(Box::pin(logs::show(&cluster, args, &screen, &mut line))).await
}

async fn suspend(global: &GlobalArgs, args: ChangeArgs, wanted: Suspension, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    let mut line = ProgressLine::new(global.color);
    let ended = until_interrupt(Box::pin(follow_suspension(&cluster, &args, wanted, &mut line))).await;
    end_change(global, &mut line, ended, screen)
}

fn end_change(
    global: &GlobalArgs,
    line: &mut ProgressLine,
    ended: Result<ChangeReport, Error>,
    screen: Screen,
) -> Result<Exit, Error> {
    line.end("");
    let report = ended?;
    let view = View { now: Timestamp::now(), wide: false, pods: false };
    screen.print(&rendered(&report, global.output, &view)?)?;
    Ok(report.outcome.exit())
}

async fn ui(global: &GlobalArgs, args: &UiArgs, screen: Screen) -> Result<Exit, Error> {
    let cluster = connect(global).await?;
    until_interrupt(Box::pin(ui::serve(&cluster, args, screen))).await
}

/// The result of a command, or [`Error::Interrupted`] after Ctrl-C.
async fn until_interrupt<R>(command: impl Future<Output = Result<R, Error>>) -> Result<R, Error> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Write)?;
    tokio::select! {
        biased;
        _ = interrupt.recv() => Err(Error::Interrupted),
        result = command => result,
    }
}

fn validate(global: &GlobalArgs, args: &ValidateArgs, screen: Screen) -> Result<Exit, Error> {
    let sources = validate::sources(&args.filenames)?;
    let injection = jobset_api::injection::Settings {
        agent_image: args.agent_image.clone(),
        ..jobset_api::injection::Settings::default()
    };
    let verdicts = validate::check(&sources, &AdmissionSettings { injection, gates: args.feature_gates });
    let view = View { now: Timestamp::now(), wide: false, pods: false };
    screen.print(&rendered(&verdicts, global.output, &view)?)?;
    Ok(if verdicts.objects.is_empty() || verdicts.any(Outcome::Unreadable) {
        Exit::Usage
    } else if verdicts.any(Outcome::Rejected) {
        Exit::No
    } else {
        Exit::Ok
    })
}

/// With `--watch`, objects are read again after this time without a change.
const REFRESH: Duration = Duration::from_secs(5);

/// Shows a report once, or again after each change.
struct Presenter {
    screen: Screen,
    output: OutputFormat,
    pods: bool,
    watch: bool,
}

impl Presenter {
    /// Shows the report and returns it. With `--watch`, shows each changed report until Ctrl-C.
    async fn show<R, F>(&self, cluster: &Cluster, scope: &WatchScope, fetch: impl Fn() -> F) -> Result<R, Error>
    where
        R: Report + PartialEq,
        F: Future<Output = Result<R, Error>>,
    {
        if !self.watch {
            let report = fetch().await?;
            self.screen.print(&self.text(&report)?)?;
            return Ok(report);
        }
        until_interrupt(Box::pin(self.follow(cluster, scope, fetch))).await
    }

    async fn follow<R, F>(&self, cluster: &Cluster, scope: &WatchScope, fetch: impl Fn() -> F) -> Result<R, Error>
    where
        R: Report + PartialEq,
        F: Future<Output = Result<R, Error>>,
    {
        let mut shown = fetch().await?;
        self.screen.redraw(&self.text(&shown)?, true)?;
        let mut changes = ChangeStream::begin(cluster, scope);
        loop {
            // No object changes when no controller runs.
            let _ = tokio::time::timeout(REFRESH, changes.next()).await;
            let report = fetch().await?;
            if report != shown {
                shown = report;
                self.screen.redraw(&self.text(&shown)?, false)?;
            }
        }
    }

    fn text(&self, report: &impl Report) -> Result<String, Error> {
        rendered(report, self.output, &View { now: Timestamp::now(), wide: false, pods: self.pods })
    }
}
