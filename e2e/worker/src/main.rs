//! The worker container of the tests and of the demo: a static program for an image with nothing else in it.
//!
//! It writes down when it starts and when it ends, ends on demand, and answers what a test wants to know from inside its
//! Pod. See `jobset-test-worker --help`.

mod config;
mod dns;
mod http;
mod journal;
mod nap;

use std::io;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use config::{Config, HELP, Mode};
use journal::Journal;

/// Exit code of a process that SIGTERM ended, as a shell gives it.
const TERMINATED: u8 = 143;
/// Pause between two questions for a name.
const RESOLVE_PAUSE: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    if program.rsplit('/').next() == Some("sleep") {
        return sleep(&args);
    }
    let config = match Config::parse(&args, |name| std::env::var(name).ok()) {
        Ok(config) => Arc::new(config),
        Err(text) => {
            eprintln!("jobset-test-worker: {text}");
            return ExitCode::from(2);
        }
    };
    let ended = match &config.mode {
        Mode::Help => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Mode::Worker => work(&config),
        Mode::ResolveLoop { name, addresses } => resolve_loop(&config, name, *addresses),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("jobset-test-worker: {error}");
        ExitCode::FAILURE
    })
}

/// As PID 1 of a container it would not get a SIGTERM for which it has no handler.
fn sleep(args: &[String]) -> ExitCode {
    let ended = Signals::new([SIGTERM]).map_err(|error| error.to_string()).and_then(|mut signals| {
        let time = nap::parse(args)?;
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                std::process::exit(TERMINATED.into());
            }
        });
        std::thread::sleep(time);
        Ok(())
    });
    ended.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn work(config: &Arc<Config>) -> io::Result<ExitCode> {
    // Before the start line, so that whoever has read it can connect. SIGTERM first: the kernel does not deliver it to
    // the first process of a container that has no handler.
    let mut signals = Signals::new([SIGTERM])?;
    let listener = listen(config.port)?;
    let journal = Arc::new(Journal::open(config).map_err(|error| named("cannot open the journal", &error))?);
    journal.write("start", &json!({}));

    {
        let (config, journal) = (Arc::clone(config), Arc::clone(&journal));
        std::thread::spawn(move || {
            for _ in signals.forever() {
                if config.ignore_sigterm {
                    journal.write("sigterm", &json!({}));
                } else {
                    let _guard = journal.begin_exit(TERMINATED, "sigterm");
                    std::process::exit(TERMINATED.into());
                }
            }
        });
    }
    if let Some(run) = config.run {
        let journal = Arc::clone(&journal);
        std::thread::spawn(move || {
            std::thread::sleep(run);
            let _guard = journal.begin_exit(0, "completed");
            std::process::exit(0);
        });
    }
    http::serve(&listener, config, &journal);
    Ok(ExitCode::FAILURE)
}

/// Listens on all addresses, IPv6 and IPv4.
fn listen(port: u16) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    bound.map_err(|error| named(&format!("cannot listen on port {port}"), &error))
}

fn resolve_loop(config: &Arc<Config>, name: &str, enough: usize) -> io::Result<ExitCode> {
    let mut signals = Signals::new([SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            std::process::exit(TERMINATED.into());
        }
    });
    let journal = Journal::open(config).map_err(|error| named("cannot open the journal", &error))?;
    let begin = Instant::now();
    for attempt in 1.. {
        let last = match dns::resolve(&config.resolv_conf, name) {
            Ok(addresses) if addresses.len() >= enough => {
                let data = json!({ "name": name, "addresses": addresses, "attempts": attempt });
                journal.write("resolved", &data);
                return Ok(ExitCode::SUCCESS);
            }
            Ok(addresses) => format!("it has {} addresses", addresses.len()),
            Err(error) => error.to_string(),
        };
        if begin.elapsed() > config.resolve_limit {
            let data = json!({ "name": name, "wanted": enough, "attempts": attempt, "error": last });
            journal.write("unresolved", &data);
            break;
        }
        std::thread::sleep(RESOLVE_PAUSE);
    }
    Ok(ExitCode::FAILURE)
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
