//! The signals of this process, as a stream of events.

use std::io;

use nix::libc::{SIGRTMAX, SIGRTMIN};
use nix::sys::signal::SigSet;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The signals that a supervisor does not forward.
///
/// - SIGKILL and SIGSTOP cannot be caught.
/// - The signals of a fault (SIGSEGV and others) concern the process at fault. Once caught, the fault would repeat forever.
/// - The signals of job control belong to the terminal.
/// - SIGPIPE concerns the agent's own writes. SIGCHLD and SIGTERM are inputs of the state machine.
const NOT_FORWARDED: [Signal; 14] = [
    Signal::KILL,
    Signal::STOP,
    Signal::ILL,
    Signal::TRAP,
    Signal::BUS,
    Signal::FPE,
    Signal::SEGV,
    Signal::SYS,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
    Signal::PIPE,
    Signal::CHILD,
    Signal::TERM,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalEvent {
    /// SIGTERM, or SIGINT of a sidecar: the agent should end.
    Terminate,
    /// SIGCHLD: one child or several children have ended.
    ChildEnded,
    /// A signal for the worker, by its number.
    Forward(i32),
}

/// Blocks SIGTERM, so that the kernel keeps one until [`Signals::listen`]. The kernel drops a SIGTERM for which the first process
/// of a container has no handler; a Pod deleted in that moment would then take its whole grace period to end.
pub fn block_terminate() -> io::Result<()> {
    Ok(terminate_set().thread_block()?)
}

fn terminate_set() -> SigSet {
    SigSet::from(nix::sys::signal::Signal::SIGTERM)
}

#[derive(Debug)]
pub struct Signals(mpsc::Receiver<SignalEvent>);

impl Signals {
    /// Installs the signal handlers and unblocks SIGTERM. A sidecar handles SIGINT as SIGTERM; a supervisor forwards all signals
    /// but a few to its worker.
    pub fn listen(supervises: bool) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(16);
        spawn(&sender, SignalKind::terminate(), SignalEvent::Terminate)?;
        terminate_set().thread_unblock()?;
        if supervises {
            spawn(&sender, SignalKind::child(), SignalEvent::ChildEnded)?;
            for number in forwarded() {
                spawn(&sender, SignalKind::from_raw(number), SignalEvent::Forward(number))?;
            }
        } else {
            spawn(&sender, SignalKind::interrupt(), SignalEvent::Terminate)?;
        }
        Ok(Self(receiver))
    }

    /// Waits for a signal that ends the agent.
    pub async fn terminated(&mut self) {
        while self.next().await != SignalEvent::Terminate {}
    }

    pub async fn next(&mut self) -> SignalEvent {
        match self.0.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// The numbers of the signals that a supervisor forwards: all named signals except [`NOT_FORWARDED`], and the real-time signals
/// that the C library does not use itself. Several signals of one number that arrive at once may be forwarded as one.
fn forwarded() -> impl Iterator<Item = i32> {
    let is_excluded = |number| NOT_FORWARDED.iter().any(|signal| signal.as_raw() == number);
    let named = (1..32).filter(move |number| Signal::from_named_raw(*number).is_some() && !is_excluded(*number));
    named.chain(SIGRTMIN()..=SIGRTMAX())
}

fn spawn(sender: &mpsc::Sender<SignalEvent>, kind: SignalKind, event: SignalEvent) -> io::Result<()> {
    let (sender, mut stream) = (sender.clone(), signal(kind)?);
    tokio::spawn(async move {
        while stream.recv().await.is_some() {
            if sender.send(event).await.is_err() {
                break;
            }
        }
    });
    Ok(())
}
