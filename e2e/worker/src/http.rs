//! What a test can ask of a running worker, over HTTP.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tiny_http::{Request, Response, Server};

use crate::config::Config;
use crate::journal::Journal;
use crate::steps::{Hang, Steps};

/// The kubelet shows the content of this file in the status of the container.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The parameters of a request, decoded.
type Query = HashMap<String, String>;

/// An answer, and whether the worker ends after it.
struct Answer {
    status: u16,
    body: String,
    exit: Option<u8>,
}

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        Self { status, body: format!("{body}\n"), exit: None }
    }

    fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, body: body.into(), exit: None }
    }
}

/// Serves each request on a thread of its own, for ever.
pub(crate) fn serve(server: &Server, config: &Arc<Config>, journal: &Arc<Journal>, steps: &Arc<Steps>) {
    for request in server.incoming_requests() {
        let (config, journal, steps) = (Arc::clone(config), Arc::clone(journal), Arc::clone(steps));
        std::thread::spawn(move || {
            if let Err(error) = answer(request, &config, &journal, &steps) {
                eprintln!("jobset-test-worker: cannot answer a request: {error}");
            }
        });
    }
}

fn answer(request: Request, config: &Config, journal: &Journal, steps: &Steps) -> io::Result<()> {
    let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let Answer { status, body, exit } = route(path, &query, config, journal, steps);
    let guard = exit.map(|code| journal.begin_exit(code, "request"));
    let sent = request.respond(Response::from_string(body).with_status_code(status));
    if let (Some(code), Some(_guard)) = (exit, guard) {
        std::process::exit(code.into());
    }
    sent
}

fn route(path: &str, query: &Query, config: &Config, journal: &Journal, steps: &Steps) -> Answer {
    match path {
        "/" => Answer::json(200, &journal.identity()),
        "/exit" => match query.get("code").map(|code| code.parse::<u8>()) {
            Some(Ok(code)) => {
                // A supervisor reads standard error, a kubelet the termination log.
                if let Some(message) = query.get("message") {
                    eprintln!("{message}");
                }
                if let Some(message) = query.get("message")
                    && let Err(error) = fs::write(TERMINATION_LOG, message)
                {
                    eprintln!("jobset-test-worker: {TERMINATION_LOG}: {error}");
                }
                Answer { exit: Some(code), ..Answer::text(200, "") }
            }
            _ => Answer::text(400, "code must be a number from 0 to 255\n"),
        },
        "/hang" => match query.get("how").map(String::as_str) {
            Some("none") => hang(steps, None),
            Some(how) if Hang::parse(how).is_some() => hang(steps, Hang::parse(how)),
            _ => Answer::text(400, "how must be wait, loop, stop or none\n"),
        },
        "/resolve" => resolve(query.get("name").map_or("", String::as_str)),
        "/write" => from_io(scratch_file(query, config).and_then(|file| {
            fs::write(file, query.get("text").map_or("", String::as_str))?;
            Ok(String::new())
        })),
        "/read" => from_io(scratch_file(query, config).and_then(fs::read_to_string)),
        _ => Answer::text(404, "see jobset-test-worker --help\n"),
    }
}

fn hang(steps: &Steps, how: Option<Hang>) -> Answer {
    steps.set(how);
    Answer::text(200, "")
}

/// The addresses of a name, by the search domains of resolv.conf. The static C library contains its DNS client.
fn resolve(name: &str) -> Answer {
    match (name, 0).to_socket_addrs() {
        Ok(addresses) => {
            let addresses: Vec<_> = addresses.map(|address| address.ip()).collect();
            Answer::json(200, &json!({ "name": name, "addresses": addresses }))
        }
        Err(error) => Answer::json(404, &json!({ "name": name, "addresses": [], "error": error.to_string() })),
    }
}

fn scratch_file(query: &Query, config: &Config) -> io::Result<PathBuf> {
    let invalid = |text| io::Error::new(ErrorKind::InvalidInput, text);
    let dir = config.scratch.as_ref().ok_or_else(|| invalid("SCRATCH_DIR is not set"))?;
    match query.get("name") {
        Some(name) if !name.is_empty() && !name.contains('/') && !name.starts_with('.') => Ok(dir.join(name)),
        _ => Err(invalid("name must be the name of a file")),
    }
}

fn from_io(result: io::Result<String>) -> Answer {
    match result {
        Ok(body) => Answer::text(200, body),
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::NotFound => 404,
                ErrorKind::InvalidInput => 400,
                _ => 500,
            };
            Answer::text(status, format!("{error}\n"))
        }
    }
}
