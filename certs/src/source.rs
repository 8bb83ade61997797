//! A certificate that others issue: in a Secret, or mounted as a directory, as cert-manager and the kubelet do it.
//!
//! [`judge`] decides whether what is there can be put into service, [`watch`] and [`poll`] look for it. Inodes are not
//! watched: the kubelet swaps a symlink above the files, and they never change.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;

use crate::material::{CA_CERTIFICATES, CERTIFICATE, Data, Defect, KEY, Material, Serving};
use crate::policy::Cause;
use crate::{Names, watches, x509};

/// How often to look.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// Longest duration of a watch on the Secret.
const WATCH_SECONDS: u32 = 3;
/// Where the kubelet has a symlink to the directory of the files that are current.
const CURRENT: &str = "..data";
/// Largest file in bytes: a Secret cannot hold more.
const FILE_LIMIT: u64 = 1 << 20;

/// What the files hold, by name; or why they cannot be read.
pub(crate) type Files = Result<Data, String>;

/// The certificate of the files, if it can be put into service: it has its key, is valid now and for these names, and
/// was signed by the CA beside it if there is one.
pub(crate) fn judge(files: &Files, names: &Names, now: Timestamp) -> Result<Serving, String> {
    let files = files.as_ref().map_err(Clone::clone)?;
    usable(files, names, now).map_err(|cause| match cause {
        Cause::Defect(_) => cause.to_string(),
        _ => format!("{CERTIFICATE} is {cause}"),
    })
}

fn usable(files: &Data, names: &Names, now: Timestamp) -> Result<Serving, Cause> {
    let serving = Material::read(files).serving.map_err(Cause::Defect)?;
    if now > serving.validity.not_after {
        return Err(Cause::Expired);
    }
    if now < serving.validity.not_before {
        return Err(Cause::NotYetValid);
    }
    let chain = &serving.certified.cert;
    let missing = x509::names_not_covered(chain, names);
    if !missing.is_empty() {
        return Err(Cause::Names(missing));
    }
    let authorities = files.get(CA_CERTIFICATES).map(|it| x509::certificates(&it.0)).unwrap_or_default();
    if !authorities.is_empty() && !x509::is_trusted(chain, &authorities, names, now) {
        return Err(Cause::Defect(Defect::Unsigned));
    }
    Ok(serving)
}

pub(crate) async fn read(directory: PathBuf) -> Files {
    let read = tokio::task::spawn_blocking(move || read_now(&directory)).await;
    read.unwrap_or_else(|error| Err(format!("reading was interrupted: {error}")))
}

fn read_now(directory: &Path) -> Files {
    // All of them from the same directory, though the symlink be swapped meanwhile.
    let current = directory.join(CURRENT).canonicalize();
    let directory = current.unwrap_or_else(|_| directory.to_owned());
    let mut files = Data::new();
    for name in [CERTIFICATE, KEY, CA_CERTIFICATES] {
        let mut bytes = Vec::new();
        match File::open(directory.join(name)).and_then(|file| file.take(FILE_LIMIT).read_to_end(&mut bytes)) {
            Ok(_) => drop(files.insert(name.to_owned(), ByteString(bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{name} cannot be read: {error}")),
        }
    }
    Ok(files)
}

/// Looks at the directory all the time, and emits when the files have changed. They are sent only when two looks in a row
/// have found the same: writers that are not a kubelet replace one file after the other.
pub(crate) fn poll(directory: PathBuf, files: watch::Sender<Files>) -> impl Stream<Item = ()> {
    let before = files.borrow().clone();
    stream::unfold((files, before), move |(files, mut before)| {
        let directory = directory.clone();
        async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let found = read(directory.clone()).await;
                let settled = found == before && *files.borrow() != found;
                before.clone_from(&found);
                if settled {
                    drop(files.send_replace(found));
                    return Some(((), (files, before)));
                }
            }
        }
    })
}

/// Reads the Secret, watches it, and emits when what is read has changed. By `get` and `watch` of its name alone: it needs no
/// permission to list Secrets.
pub(crate) fn watch(
    client: Client,
    namespace: &str,
    name: String,
    files: watch::Sender<Files>,
) -> impl Stream<Item = ()> + use<> {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    stream::unfold((files, None::<String>), move |(files, mut version)| {
        let (secrets, name) = (secrets.clone(), name.clone());
        async move {
            loop {
                if let Some(version) = version.take() {
                    changed(&secrets, &name, &version).await;
                }
                let found = secrets.get_opt(&name).await;
                version =
                    found.as_ref().ok().map(|it| it.as_ref().and_then(Secret::resource_version).unwrap_or_default());
                if version.as_ref().is_none_or(String::is_empty) {
                    tokio::time::sleep(INTERVAL).await;
                }
                let read = found.map_err(|error| format!("it cannot be read: {}", watches::chain(&error)));
                let read = read.map(|it| it.and_then(|it| it.data).unwrap_or_default());
                if files.send_if_modified(|it| std::mem::replace(it, read.clone()) != read) {
                    return Some(((), (files, version)));
                }
            }
        }
    })
}

/// Waits until the Secret is no longer the one of this version, or the watch ends. A watch that is dead without knowing ends soon,
/// too: a certificate that was revoked must leave.
async fn changed(secrets: &Api<Secret>, name: &str, version: &str) {
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let watched = async {
        let Ok(events) = secrets.watch(&params, version).await else {
            return tokio::time::sleep(INTERVAL).await;
        };
        let mut events = events.boxed();
        while let Ok(Some(WatchEvent::Bookmark(_))) = events.try_next().await {}
    };
    let longest = Duration::from_secs(u64::from(WATCH_SECONDS) + 1);
    let _ = tokio::time::timeout(longest, watched).await;
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;
    use crate::material;
    use crate::{Lifetimes, issue};

    const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn names() -> Names {
        Names::of_host("hook", "ns").unwrap()
    }

    fn issue_for(name: &str) -> Data {
        let lifetimes = Lifetimes::default();
        let authority = issue::authority(ISSUED, &lifetimes).unwrap();
        let names = Names::from_parts([name.to_owned()].into(), [].into());
        let mut data = material::with_new_serving(&authority, &names, ISSUED, &lifetimes).unwrap();
        data.remove(material::CA_KEY);
        data
    }

    fn take(data: &mut Data, other: &Data, entry: &str) {
        data.insert(entry.to_owned(), other[entry].clone());
    }

    #[rstest]
    #[case::as_issued(|_: &mut Data| {}, 0, None)]
    #[case::without_a_ca(|it: &mut Data| drop(it.remove("ca.crt")), 0, None)]
    #[case::with_an_empty_ca(|it: &mut Data| drop(it.insert("ca.crt".into(), ByteString(Vec::new()))), 0, None)]
    #[case::of_a_wildcard(|it: &mut Data| *it = issue_for("*.ns.svc"), 0, None)]
    #[case::nothing(|it: &mut Data| it.clear(), 0, Some("tls.crt is missing"))]
    #[case::no_key(|it: &mut Data| drop(it.remove("tls.key")), 0, Some("tls.key is missing"))]
    #[case::cut_off(|it: &mut Data| it.get_mut("tls.crt").unwrap().0.truncate(300), 0, Some("tls.crt is malformed"))]
    #[case::another_key(|it: &mut Data| take(it, &issue_for("hook.ns.svc"), "tls.key"), 0, Some("tls.key is not the key of its certificate"))]
    #[case::another_ca(|it: &mut Data| take(it, &issue_for("hook.ns.svc"), "ca.crt"), 0, Some("tls.crt was not signed by ca.crt"))]
    #[case::another_name(|it: &mut Data| *it = issue_for("hook.other.svc"), 0, Some("tls.crt is not valid for hook.ns.svc"))]
    #[case::expired(|_: &mut Data| {}, 91, Some("tls.crt is expired"))]
    #[case::too_early(|_: &mut Data| {}, -1, Some("tls.crt is not yet valid"))]
    fn what_is_broken_is_named(#[case] change: fn(&mut Data), #[case] day: i64, #[case] expected: Option<&str>) {
        let mut data = issue_for("hook.ns.svc");
        change(&mut data);
        let now = ISSUED + SignedDuration::from_hours(24 * day);
        assert_eq!(judge(&Ok(data), &names(), now).err().as_deref(), expected);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let denied = Err("tls.key cannot be read: denied".to_owned());
        assert_eq!(judge(&denied, &names(), ISSUED).unwrap_err(), "tls.key cannot be read: denied");
    }
}
