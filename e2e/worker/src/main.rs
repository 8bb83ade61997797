//! The worker container of the tests and of the demo: a static program for an image with nothing else in it.
//!
//! It writes down when it starts and when it ends, ends on demand, and answers what a test wants to know from inside its
//! Pod. See `jobset-test-worker --help`.

mod config;
mod http;
mod journal;
mod nap;
mod peers;
mod steps;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use tiny_http::Server;

use config::{Config, HELP};
use journal::Journal;
use steps::Steps;

/// Exit code of a process that SIGTERM ended, as a shell gives it.
const TERMINATED: u8 = 143;

fn main() -> ExitCode {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    if program.rsplit('/').next() == Some("sleep") {
        return sleep(&args);
    }
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("jobset-test-worker: unknown arguments {args:?}; see jobset-test-worker --help");
            return ExitCode::from(2);
        }
    }
    let config = match Config::parse(|name| std::env::var(name).ok()) {
        Ok(config) => Arc::new(config),
        Err(text) => {
            eprintln!("jobset-test-worker: {text}");
            return ExitCode::from(2);
        }
    };
    work(&config).unwrap_or_else(|error| {
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
    let server = listen(config.port)?;
    let journal = Arc::new(Journal::open(config).map_err(|error| named("cannot open the journal", &error))?);
    journal.write("start", &json!({}));
    if let Some((code, words)) = &config.exit_at_start {
        let _guard = journal.begin_exit(*code, "at start");
        eprintln!("{words}");
        std::process::exit((*code).into());
    }

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
    peers::watch(config, &journal);
    http::serve(&server, config, &journal, &Steps::begin(config, &journal));
    Ok(ExitCode::FAILURE)
}

/// Listens on all addresses, IPv6 and IPv4.
fn listen(port: u16) -> io::Result<Server> {
    let server = Server::http(("::", port)).or_else(|_| Server::http(("0.0.0.0", port)));
    server.map_err(|error| io::Error::other(format!("cannot listen on port {port}: {error}")))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
