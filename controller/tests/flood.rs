//! A flood of connections on the controller's ports: reconciliations, the Lease and probes go on.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::fixture::{Fixture, LIMIT, in_place};
use crate::program::NAMESPACE;

/// Connections that one attacker holds at once: more than a port has.
const HELD: usize = 300;
/// Connections that the flood has made before anything is looked at, and at least makes meanwhile.
const FLOOD: usize = 2_000;
/// Probes that are answered while the flood goes on, and times that the Lease is renewed.
const PROBES: usize = 50;
const RENEWALS: usize = 3;

/// What attackers send before they are silent: nothing, half a head, or a whole request that they do not read the answer of.
const BEGINNINGS: [&[u8]; 3] = [b"", b"GET /healthz HTTP/1.1\r\nx: ", b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n"];

/// Attackers that make new connections until this value is dropped.
struct Flood {
    made: Arc<AtomicUsize>,
    _attackers: JoinSet<()>,
}

impl Flood {
    /// Upon these ports, from an address that no probe comes from.
    fn upon(ports: &[SocketAddr], from: Ipv4Addr) -> Self {
        let (made, mut attackers) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        for &port in ports {
            for begin in BEGINNINGS {
                attackers.spawn(attack(port, from, begin, Arc::clone(&made)));
            }
        }
        Self { made, _attackers: attackers }
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Waits until it has made so many connections.
    async fn has_made(&self, number: usize) -> Result<()> {
        wait::until_met(LIMIT, format!("{number} connections"), || async {
            let made = self.made();
            Ok(if made >= number { Check::Met(()) } else { Check::Unmet(made.to_string()) })
        })
        .await
    }
}

async fn attack(port: SocketAddr, from: Ipv4Addr, begin: &'static [u8], made: Arc<AtomicUsize>) {
    let mut held = VecDeque::new();
    loop {
        if let Ok(mut stream) = connect(port, from).await
            && stream.write_all(begin).await.is_ok()
        {
            made.fetch_add(1, Ordering::Relaxed);
            held.push_back(stream);
        }
        if held.len() > HELD {
            held.pop_front();
        }
        yield_now().await;
    }
}

async fn connect(port: SocketAddr, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((IpAddr::V4(from), 0).into())?;
    socket.connect(port).await
}

/// A probe as a kubelet's, which fails when it gets no answer.
async fn probe(port: SocketAddr) -> Result<()> {
    let asked = async {
        let mut stream = TcpStream::connect(port).await?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "answered with {answer:?}");
        Ok(())
    };
    timeout(LIMIT, asked).await?
}

async fn lease(fixture: &Fixture) -> Result<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    leases.get("6d4f6a47.jobset.x-k8s.io").await?.spec.context("an empty Lease")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_flood_delays_no_reconciliation_lease_or_probe() -> Result<()> {
    let fixture = Fixture::start_with(&["--metrics-secure=true", "--leader-elect-retry-period=500ms"]).await?;
    let controller = &fixture.controller;
    controller.logged("leading").await?;
    let (health, metrics) = (controller.address("health checks").await?, controller.address("metrics").await?);
    let (health, metrics) = (health.parse()?, metrics.parse()?);
    let begin = lease(&fixture).await?;
    let flood = Flood::upon(&[health, metrics], Ipv4Addr::new(127, 0, 0, 2));
    flood.has_made(FLOOD).await?;

    fixture.create(in_place("train", 2, 3)).await?;
    let reconciled = async { fixture.pods("train", 2, "0").await.map(drop).context("the JobSet") };
    let renewed = async {
        let mut last = lease(&fixture).await?;
        for _ in 0..RENEWALS {
            last = wait::until(LIMIT, "a renewal", || async {
                let now = lease(&fixture).await?;
                Ok((now.renew_time != last.renew_time).then_some(now))
            })
            .await?;
        }
        assert_eq!((last.lease_transitions, last.holder_identity), (begin.lease_transitions, begin.holder_identity));
        anyhow::Ok(())
    };
    let probed = async {
        for number in 0..PROBES {
            probe(health).await.with_context(|| format!("probe {number}"))?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(reconciled, renewed, probed)?;
    let meanwhile = flood.made() - FLOOD;
    flood.has_made(2 * FLOOD).await?;
    println!("{meanwhile} connections meanwhile");
    drop(flood);
    fixture.plane.stop().await
}
