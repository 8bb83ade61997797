//! HTTP requests without TLS, each over a connection of its own.

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};

/// The whole answer to `GET path`: head and body.
pub(crate) async fn get(address: impl ToSocketAddrs, path: &str) -> Result<String> {
    let mut answer = String::new();
    send(address, path).await?.read_to_string(&mut answer).await.context("cannot read the answer")?;
    Ok(answer)
}

/// Sends `GET path`. The answer is still to be read from the connection.
pub(crate) async fn send(address: impl ToSocketAddrs, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await.context("cannot connect")?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("cannot send the request")?;
    Ok(stream)
}
