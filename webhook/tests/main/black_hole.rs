//! Replicas that are gone, or that no packet reaches: the API server gives up, and creates Pods whose JobSet may avoid nodes as they are
//! sent. No other Pod is asked about. How long each Pod took is printed: the time-out is that of the registration.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket, sockopt};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::avoided::pod;
use crate::cluster::{LIMIT, Plane};
use crate::exclusive::Space;

/// The way from the API server to a replica. It can swallow all that is sent.
struct Way {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
    /// What has come from the API server: connections, and pieces of what is sent over them.
    arrived: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Way {
    async fn to(plane: &Plane, replica: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((plane.plane.ready().host_address, 0)).await?;
        let (address, (is_open, open)) = (listener.local_addr()?, watch::channel(true));
        let arrived = Arc::new(AtomicUsize::new(0));
        let (count, mut serving) = (Arc::clone(&arrived), JoinSet::new());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                connections.spawn(forward(client, replica, open.clone(), Arc::clone(&count)));
            }
        });
        Ok(Self { address, is_open, arrived, _serving: serving })
    }

    fn arrived(&self) -> usize {
        self.arrived.load(Ordering::Relaxed)
    }
}

/// Carries what is sent, both ways, while the way is open.
async fn forward(mut client: TcpStream, replica: SocketAddr, open: watch::Receiver<bool>, count: Arc<AtomicUsize>) {
    let Ok(mut replica) = TcpStream::connect(replica).await else { return };
    let ((mut from_client, mut to_client), (mut from_replica, mut to_replica)) = (client.split(), replica.split());
    let (mut open_to, mut open_from) = (open.clone(), open);
    let to = async {
        let mut piece = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            count.fetch_add(1, Ordering::Relaxed);
            if open_to.wait_for(|open| *open).await.is_err() || to_replica.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    let from = async {
        let mut piece = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from_replica.read(&mut piece).await {
            if open_from.wait_for(|open| *open).await.is_err() || to_client.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! { () = to => {}, () = from => {} }
}

/// A listener at this address whose queue is full: the kernel drops packets that ask for another connection.
fn dropping(address: SocketAddr) -> Result<Vec<std::os::fd::OwnedFd>> {
    let listener = socket(family(address), SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    bind(listener.as_fd(), &address)?;
    listen(&listener, 0)?;
    let mut sockets = vec![listener];
    for _ in 0..16 {
        let client = socket(family(address), SocketType::STREAM, None)?;
        // So long is long enough for a connection to an address of this machine.
        sockopt::set_socket_timeout(&client, sockopt::Timeout::Send, Some(Duration::from_millis(500)))?;
        let connected = connect(client.as_fd(), &address);
        sockets.push(client);
        if connected.is_err() {
            return Ok(sockets);
        }
    }
    anyhow::bail!("the queue of {address} is never full")
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET }
}

#[tokio::test]
async fn pods_are_created_while_no_replica_answers() -> Result<()> {
    let space = Space::alone(Plane::start().await?, "no-answer").await?;
    let replica = space.plane.replica().await?;
    let way = Way::to(space.plane, replica.address).await?;
    space.plane.register(way.address).await?;
    replica.ready().await?;
    let jobset = jobset_harness::wait::until(LIMIT, "a JobSet to be admitted", async || {
        space.avoiding("train", json!({}), &["bad"]).await.map(Some)
    })
    .await?;
    space.until_kept_away(&jobset).await?;

    let labelled = pod(&jobset);
    let mut other = labelled.clone();
    other["metadata"]["labels"] = json!({ "jobset.sigs.k8s.io/jobset-name": "train" });
    let created_as_sent = async |why: &str| {
        let began = Instant::now();
        let created = space.created(&labelled).await?;
        let took = began.elapsed();
        ensure!(created["spec"].get("affinity").is_none(), "{why}: {}", created["spec"]);
        eprintln!("{why}: a Pod that may avoid nodes took {took:?}");
        space.created(&other).await
    };

    // Connections that are open, and new ones: what is sent over either arrives nowhere.
    way.is_open.send(false)?;
    let before = way.arrived();
    space.created(&other).await?;
    assert_eq!(way.arrived(), before, "a Pod without the label was asked about");
    created_as_sent("swallowed").await?;
    assert!(way.arrived() > before, "a Pod with the label was not asked about");

    let address = way.address;
    drop(way);
    replica.stop().await?;
    created_as_sent("killed").await?;

    let _full = tokio::task::spawn_blocking(move || dropping(address)).await??;
    created_as_sent("dropped").await?;
    Ok(())
}
