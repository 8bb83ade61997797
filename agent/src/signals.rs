//! The signals that this process gets, one after another.

use std::io;

use nix::sys::signal::SigSet;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a supervisor passes on to its worker, besides SIGTERM, which is a decision. SIGKILL and SIGSTOP cannot be caught;
/// those of a fault are nobody's to send; those of job control belong to the terminal.
const FORWARDED: [Signal; 11] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::CONT,
    Signal::URG,
    Signal::WINCH,
    Signal::IO,
    Signal::POWER,
];

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// The agent is asked to end.
    Terminate,
    /// A child has ended, maybe several.
    ChildEnded,
    /// One that is the worker's.
    Forward(Signal),
}

/// Keeps a SIGTERM until [`Signals::listen`]. The kernel drops one for which the first process of a container has no handler
/// yet, and a Pod that is deleted just then takes its whole grace period.
///
/// # Errors
/// The kernel refuses.
pub fn keep_terminate() -> io::Result<()> {
    Ok(terminate().thread_block()?)
}

fn terminate() -> SigSet {
    SigSet::from(nix::sys::signal::Signal::SIGTERM)
}

/// Where signals arrive.
#[derive(Debug)]
pub struct Signals(mpsc::Receiver<Signalled>);

impl Signals {
    /// Listens from now on. A sidecar takes SIGINT for SIGTERM; a supervisor passes on what it can.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen(supervises: bool) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(16);
        spawn(&sender, SignalKind::terminate(), Signalled::Terminate)?;
        terminate().thread_unblock()?;
        if supervises {
            spawn(&sender, SignalKind::child(), Signalled::ChildEnded)?;
            for signal in FORWARDED {
                spawn(&sender, SignalKind::from_raw(signal.as_raw()), Signalled::Forward(signal))?;
            }
        } else {
            spawn(&sender, SignalKind::interrupt(), Signalled::Terminate)?;
        }
        Ok(Self(receiver))
    }

    /// The next one.
    pub async fn next(&mut self) -> Signalled {
        match self.0.recv().await {
            Some(signalled) => signalled,
            None => std::future::pending().await,
        }
    }
}

fn spawn(sender: &mpsc::Sender<Signalled>, kind: SignalKind, signalled: Signalled) -> io::Result<()> {
    let (sender, mut stream) = (sender.clone(), signal(kind)?);
    tokio::spawn(async move {
        while stream.recv().await.is_some() {
            if sender.send(signalled).await.is_err() {
                break;
            }
        }
    });
    Ok(())
}
