//! The signals that this process gets, one after another.

use std::io;

use nix::libc::{SIGRTMAX, SIGRTMIN};
use nix::sys::signal::SigSet;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a supervisor does not pass on. SIGKILL and SIGSTOP cannot be caught; those of a fault are nobody's to send, and
/// caught, the fault would come again for ever; those of job control belong to the terminal; SIGPIPE is the agent's own, as
/// are SIGCHLD and SIGTERM, which are decisions.
const KEPT: [Signal; 14] = [
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
/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// The agent is asked to end.
    Terminate,
    /// A child has ended, maybe several.
    ChildEnded,
    /// The one of this number, which is the worker's.
    Forward(i32),
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
    /// Listens from now on. A sidecar takes SIGINT for SIGTERM; a supervisor passes on what can be caught.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen(supervises: bool) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel(16);
        spawn(&sender, SignalKind::terminate(), Signalled::Terminate)?;
        terminate().thread_unblock()?;
        if supervises {
            spawn(&sender, SignalKind::child(), Signalled::ChildEnded)?;
            for number in forwarded() {
                spawn(&sender, SignalKind::from_raw(number), Signalled::Forward(number))?;
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

/// What a supervisor passes on: all but [`KEPT`], and the real-time signals that the C library leaves to others. Several of
/// one kind that come at once may be passed on as one.
fn forwarded() -> impl Iterator<Item = i32> {
    let is_kept = |number| KEPT.iter().any(|kept| kept.as_raw() == number);
    let named = (1..32).filter(move |number| Signal::from_named_raw(*number).is_some() && !is_kept(*number));
    named.chain(SIGRTMIN()..=SIGRTMAX())
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
