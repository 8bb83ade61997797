//! What a test can ask of a running worker, over HTTP.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::Config;
use crate::dns;
use crate::journal::Journal;

/// Longest wait for a request and for the client to take its answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The same before an exit, which must not be late because a client is.
const EXIT_LIMIT: Duration = Duration::from_millis(20);
/// Longest request in bytes, headers included.
const REQUEST_BYTES: usize = 16 * 1024;

/// What a container leaves here, the kubelet shows in its status.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// An answer, and whether the worker ends after it.
struct Answer {
    status: &'static str,
    body: String,
    exit: Option<u8>,
}

impl Answer {
    fn json(status: &'static str, body: &Value) -> Self {
        Self { status, body: format!("{body}\n"), exit: None }
    }

    fn text(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, body: body.into(), exit: None }
    }
}

/// Serves each connection on a thread of its own, for ever.
pub(crate) fn serve(listener: &TcpListener, config: &Arc<Config>, journal: &Arc<Journal>) {
    for stream in listener.incoming().flatten() {
        let (config, journal) = (Arc::clone(config), Arc::clone(journal));
        std::thread::spawn(move || {
            if let Err(error) = answer(stream, &config, &journal) {
                eprintln!("jobset-test-worker: a request broke off: {error}");
            }
        });
    }
}

fn answer(mut stream: TcpStream, config: &Config, journal: &Journal) -> io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let head = read_head(&mut stream)?;
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let answer = route(path, &Query::parse(query), config, journal);
    let guard = answer.exit.map(|code| journal.begin_exit(code, "request"));
    if guard.is_some() {
        stream.set_write_timeout(Some(EXIT_LIMIT))?;
    }
    let Answer { status, body, exit } = answer;
    let length = body.len();
    let sent = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    if let Some(code) = exit {
        std::process::exit(code.into());
    }
    sent
}

fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < REQUEST_BYTES {
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => head.extend(part.get(..length).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn route(path: &str, query: &Query, config: &Config, journal: &Journal) -> Answer {
    match path {
        "/" => Answer::json("200 OK", &journal.identity()),
        "/exit" => match query.get("code").map(str::parse::<u8>) {
            Some(Ok(code)) => {
                if let Some(message) = query.get("message")
                    && let Err(error) = fs::write(TERMINATION_LOG, message)
                {
                    eprintln!("jobset-test-worker: {TERMINATION_LOG}: {error}");
                }
                Answer { exit: Some(code), ..Answer::text("200 OK", "") }
            }
            _ => Answer::text("400 Bad Request", "code must be a number from 0 to 255\n"),
        },
        "/resolve" => resolve(query.get("name").unwrap_or_default(), config),
        "/journal" => from_io(journal.read()),
        "/write" => from_io(scratch_file(query, config).and_then(|file| {
            fs::write(file, query.get("text").unwrap_or_default())?;
            Ok(String::new())
        })),
        "/read" => from_io(scratch_file(query, config).and_then(fs::read_to_string)),
        _ => Answer::text("404 Not Found", "see jobset-test-worker --help\n"),
    }
}

fn resolve(name: &str, config: &Config) -> Answer {
    match dns::resolve(&config.resolv_conf, name) {
        Ok(addresses) => {
            let status = if addresses.is_empty() { "404 Not Found" } else { "200 OK" };
            Answer::json(status, &json!({ "name": name, "addresses": addresses }))
        }
        Err(error) => {
            let error = error.to_string();
            Answer::json("502 Bad Gateway", &json!({ "name": name, "addresses": [], "error": error }))
        }
    }
}

fn scratch_file(query: &Query, config: &Config) -> io::Result<PathBuf> {
    let refuse = |text| io::Error::new(ErrorKind::InvalidInput, text);
    let dir = config.scratch.as_ref().ok_or_else(|| refuse("SCRATCH_DIR is not set"))?;
    match query.get("name") {
        Some(name) if !name.is_empty() && !name.contains('/') && !name.starts_with('.') => Ok(dir.join(name)),
        _ => Err(refuse("name must be the name of a file")),
    }
}

fn from_io(result: io::Result<String>) -> Answer {
    match result {
        Ok(body) => Answer::text("200 OK", body),
        Err(error) => {
            let status = match error.kind() {
                ErrorKind::NotFound => "404 Not Found",
                ErrorKind::InvalidInput => "400 Bad Request",
                _ => "500 Internal Server Error",
            };
            Answer::text(status, format!("{error}\n"))
        }
    }
}

/// The decoded parameters of a request.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Self(text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect())
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// Undoes percent-encoding; what is not one stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("name=a%2Fb&text=one+two%0A&empty&broken=%zz%4");
        assert_eq!(query.get("name"), Some("a/b"));
        assert_eq!(query.get("text"), Some("one two\n"));
        assert_eq!(query.get("empty"), Some(""));
        assert_eq!(query.get("broken"), Some("%zz%4"));
        assert_eq!(query.get("absent"), None);
    }
}
