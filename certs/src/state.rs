//! The Secret with the CA, and the Secrets with nothing but a certificate that servers and clients read.
//!
//! The first keeps the layout that it has always had, so that older versions of the admission service find in it what they
//! know. Its serving certificates are those to be served next.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use tracing::info;

use crate::bundle::FIELD_MANAGER;
use crate::issue::{self, Usage};
use crate::material::{Authority, CA_CERTIFICATES, CA_KEY, CERTIFICATE, Data, KEY, Material, Serving, with_new_leaf};
use crate::policy::{self, Cause, Requests};
use crate::{Error, Lifetimes, Names};

/// Annotation of the Secret with the CA: since when all caBundles have held that CA. Absent while they do not.
pub const TRUSTED_SINCE: &str = "jobset.sigs.k8s.io/ca-trusted-since";
pub const MOUNTED_SINCE: &str = "jobset.sigs.k8s.io/ca-mounted-since";

/// Since when everybody has trusted the CA: API servers, and those who have Secrets mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) bundles: Option<Timestamp>,
    pub(crate) mounts: Option<Timestamp>,
}

impl Since {
    fn of(secret: &Secret) -> Self {
        let time = |annotation| secret.annotations().get(annotation)?.parse().ok();
        Self { bundles: time(TRUSTED_SINCE), mounts: time(MOUNTED_SINCE) }
    }

    /// Nobody trusts a CA yet that takes the place of the one in the Secret.
    fn forget_other_than(secret: &mut Secret, data: &Data) {
        let stored = secret.data.as_ref().and_then(|it| it.get(CA_CERTIFICATES));
        if stored != data.get(CA_CERTIFICATES) {
            Self::default().note(secret);
        }
    }

    fn note(self, secret: &mut Secret) {
        for (annotation, since) in [(TRUSTED_SINCE, self.bundles), (MOUNTED_SINCE, self.mounts)] {
            secret.annotations_mut().remove(annotation);
            secret.annotations_mut().extend(since.map(|since| (annotation.to_owned(), since.to_string())));
        }
    }
}

/// A certificate to be issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The Service that it is for, or the name of the client.
    pub name: String,
    pub secret: String,
    pub names: Names,
    pub usage: Usage,
}

/// What the Secret with the CA holds.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) authority: Authority,
    /// For each leaf, in their order, the certificate to be used, and the data of its Secret.
    pub(crate) candidates: Vec<(Serving, Data)>,
    /// CAs from before this time are not trusted.
    pub(crate) distrusted: Option<Timestamp>,
    /// As its annotations say.
    pub(crate) since: Since,
    secret: Option<Secret>,
    /// What somebody should look at before long.
    pub(crate) remark: Option<String>,
    /// When to look again at the latest.
    pub(crate) until: Timestamp,
}

impl State {
    /// Notes since when the CA is trusted, so that a restart of this program does not begin to wait once more.
    pub(crate) async fn note(&mut self, secrets: &Api<Secret>, name: &str, since: Since) -> Result<(), Error> {
        self.since = since;
        let mut secret = self.secret.clone().unwrap_or_default();
        since.note(&mut secret);
        write(secrets, name, Some(secret), Data::new()).await.map(drop)
    }
}

/// Entries of this certificate and of its key in the Secret with the CA.
fn entries(index: usize, leaf: &Leaf) -> [String; 2] {
    match index {
        0 => [CERTIFICATE.to_owned(), KEY.to_owned()],
        _ => [format!("{}.crt", leaf.name), format!("{}.key", leaf.name)],
    }
}

/// The CA and one certificate.
fn view(data: &Data, index: usize, leaf: &Leaf) -> Data {
    let [certificate, key] = entries(index, leaf);
    let pairs = [(CA_CERTIFICATES, CA_CERTIFICATES), (CA_KEY, CA_KEY), (CERTIFICATE, &certificate), (KEY, &key)];
    pairs.into_iter().filter_map(|(to, from)| Some((to.to_owned(), data.get(from)?.clone()))).collect()
}

/// Issues what is missing, broken, due or distrusted. Returns the data with that, and why each thing was issued.
fn issue_what_is_due(
    mut data: Data,
    leaves: &[Leaf],
    lifetimes: &Lifetimes,
    requests: &Requests,
    now: Timestamp,
) -> Result<(Data, State, Vec<String>), Error> {
    let mut causes = Vec::new();
    let mut found = Material::read(&data).authority;
    if let Err(cause) = policy::authority(&found, lifetimes, requests, now) {
        let issued = issue::authority(now, lifetimes)?;
        data.insert(CA_CERTIFICATES.to_owned(), ByteString(issued.certificate.into_bytes()));
        data.insert(CA_KEY.to_owned(), ByteString(issued.key.expose().as_bytes().to_vec()));
        found = Material::read(&data).authority;
        causes.push(format!("CA: {cause}"));
    }
    let until = policy::authority(&found, lifetimes, requests, now).map_err(Error::Unusable)?;
    let mut until = requests.next_time().map_or(until, |from| until.min(from));
    let authority = found.map_err(|defect| Error::Unusable(Cause::Defect(defect)))?;
    let mut candidates = Vec::new();
    for (index, leaf) in leaves.iter().enumerate() {
        let mut of_leaf = view(&data, index, leaf);
        let read = |it: &Data| Material::read_for(it, leaf.usage).serving;
        let is_good = |it: &Data| policy::serving(&read(it), &leaf.names, lifetimes, now);
        if let Err(cause) = is_good(&of_leaf) {
            of_leaf = with_new_leaf(&authority.issued, leaf.usage, &leaf.names, now, lifetimes)?;
            for (to, from) in entries(index, leaf).into_iter().zip([CERTIFICATE, KEY]) {
                data.insert(to, of_leaf[from].clone());
            }
            causes.push(format!("certificate of {}: {cause}", leaf.name));
        }
        until = until.min(is_good(&of_leaf).map_err(Error::Unusable)?);
        let serving = read(&of_leaf).map_err(|defect| Error::Unusable(Cause::Defect(defect)))?;
        of_leaf.remove(CA_KEY);
        candidates.push((serving, of_leaf));
    }
    let (distrusted, remark) = (requests.distrust.time, requests.remark());
    let state = State { authority, candidates, distrusted, since: Since::default(), secret: None, remark, until };
    Ok((data, state, causes))
}

/// Reads the Secret with the CA, and fills it where something is due.
///
/// # Errors
/// When the API server refuses to read or write, or somebody else has changed the Secret meanwhile.
pub(crate) async fn ensure(
    secrets: &Api<Secret>,
    name: &str,
    leaves: &[Leaf],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<State, Error> {
    let found = read(secrets, name).await?;
    let requests = found.as_ref().map(|it| Requests::of(it, now)).unwrap_or_default();
    let data = found.as_ref().and_then(|it| it.data.clone()).unwrap_or_default();
    let (data, state, causes) = issue_what_is_due(data, leaves, lifetimes, &requests, now)?;
    let mut secret = found;
    if !causes.is_empty() {
        if let Some(secret) = &mut secret {
            Since::forget_other_than(secret, &data);
        }
        secret = Some(write(secrets, name, secret, data).await?);
        info!(secret = name, causes = causes.join(", "), "issued certificates");
    }
    let since = secret.as_ref().map(Since::of).unwrap_or_default();
    Ok(State { since, secret, ..state })
}

pub(crate) async fn read(secrets: &Api<Secret>, name: &str) -> Result<Option<Secret>, Error> {
    secrets.get_opt(name).await.map_err(|source| Error::ReadSecret { secret: name.to_owned(), source })
}

/// Adds this to the Secret, if it is still the one that was read, and returns it as it is now.
pub(crate) async fn write(
    secrets: &Api<Secret>,
    name: &str,
    found: Option<Secret>,
    data: Data,
) -> Result<Secret, Error> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let written = if let Some(mut secret) = found {
        // The resourceVersion that was read goes along: the API server refuses the write if it is not the latest.
        secret.data.get_or_insert_default().extend(data);
        secrets.replace(name, &params, &secret).await
    } else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        secrets.create(&params, &Secret { metadata, data: Some(data), ..Secret::default() }).await
    };
    written.map_err(|source| Error::WriteSecret { secret: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::with_new_serving;
    use crate::policy::Before;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn leaves() -> [Leaf; 3] {
        [("hook", Usage::Server), ("relay", Usage::Server), ("controller", Usage::Client)].map(|(name, usage)| Leaf {
            name: name.to_owned(),
            secret: format!("{name}-leaf"),
            names: Names::of_service(name, "ns").unwrap(),
            usage,
        })
    }

    fn ensure(data: &Data, distrusted: Option<Timestamp>) -> (Data, State, Vec<String>) {
        let distrust = Before { time: distrusted, ..Before::default() };
        let requests = Requests { distrust, ..Requests::default() };
        issue_what_is_due(data.clone(), &leaves(), &Lifetimes::default(), &requests, NOW).unwrap()
    }

    #[test]
    fn time_that_is_still_to_come_is_waited_for() {
        let from = Some(NOW + jiff::SignedDuration::from_secs(3));
        let requests = Requests { rotate: Before { from, ..Before::default() }, ..Requests::default() };
        let state = issue_what_is_due(Data::new(), &leaves(), &Lifetimes::default(), &requests, NOW).unwrap().1;
        assert_eq!(Some(state.until), from);
    }

    #[test]
    fn times_of_trust_are_read_as_they_were_noted() {
        let mut secret = Secret::default();
        assert_eq!(Since::of(&secret), Since::default());
        for since in [Since { bundles: Some(NOW), mounts: None }, Since { bundles: None, mounts: Some(NOW) }] {
            since.note(&mut secret);
            assert_eq!(Since::of(&secret), since);
        }
        let data = Data::from([(CA_CERTIFICATES.to_owned(), ByteString(b"another".to_vec()))]);
        secret.data = Some(data.clone());
        Since::forget_other_than(&mut secret, &data);
        assert_eq!(Since::of(&secret).mounts, Some(NOW), "the CA is the same");
        Since::forget_other_than(&mut secret, &Data::new());
        assert_eq!(Since::of(&secret), Since::default(), "nobody trusts another CA yet");
        secret.annotations_mut().insert(TRUSTED_SINCE.to_owned(), "yesterday".to_owned());
        assert_eq!(Since::of(&secret).bundles, None, "not yet, in case of doubt");
    }

    #[test]
    fn all_leaves_have_one_ca_and_are_issued_once() {
        let (data, state, causes) = ensure(&Data::new(), None);
        assert_eq!(causes.len(), 4, "{causes:?}");
        assert_eq!(
            state.candidates.iter().map(|(it, _)| it.names.clone()).collect::<Vec<_>>(),
            leaves().map(|it| it.names)
        );
        for (_, of_leaf) in &state.candidates {
            assert!(!of_leaf.contains_key(CA_KEY), "the key of the CA goes nowhere");
            assert_eq!(of_leaf[CA_CERTIFICATES], data[CA_CERTIFICATES]);
        }
        let (again, _, causes) = ensure(&data, None);
        assert!(again == data && causes.is_empty(), "{causes:?}");
    }

    #[test]
    fn the_certificate_of_one_service_is_replaced_alone() {
        let (data, ..) = ensure(&Data::new(), None);
        let mut damaged = data.clone();
        damaged.remove("relay.key");
        let (repaired, _, causes) = ensure(&damaged, None);
        assert_eq!(causes, ["certificate of relay: tls.key is missing"]);
        let changed: Vec<_> =
            data.iter().filter(|(entry, it)| repaired[*entry] != **it).map(|(entry, _)| entry).collect();
        assert_eq!(changed, ["relay.crt", "relay.key"]);
    }

    #[test]
    fn certificate_of_server_is_replaced_where_client_needs_one() {
        let (data, ..) = ensure(&Data::new(), None);
        let mut swapped = data.clone();
        for (to, from) in [("controller.crt", "relay.crt"), ("controller.key", "relay.key")] {
            swapped.insert(to.to_owned(), data[from].clone());
        }
        let (_, state, causes) = ensure(&swapped, None);
        assert_eq!(causes, ["certificate of controller: tls.crt was not signed by ca.crt"]);
        assert_eq!(state.candidates[2].0.names, leaves()[2].names);
    }

    #[test]
    fn rotation_on_request_replaces_ca_and_leaves_once() {
        let authority = issue::authority(NOW - jiff::SignedDuration::from_secs(60), &Lifetimes::default()).unwrap();
        let old = with_new_serving(&authority, &leaves()[0].names, NOW, &Lifetimes::default()).unwrap();
        let requests = Requests { rotate: Before { time: Some(NOW), ..Before::default() }, ..Requests::default() };
        let rotate =
            |data: &Data| issue_what_is_due(data.clone(), &leaves(), &Lifetimes::default(), &requests, NOW).unwrap();
        let (data, state, causes) = rotate(&old);
        assert!(causes[0].contains("rotate-ca-before") && causes.len() == 4, "{causes:?}");
        assert!(old.iter().all(|(entry, it)| data[entry] != *it));
        assert_eq!(state.distrusted, None);
        assert_eq!(rotate(&data).2, Vec::<String>::new(), "once");
    }

    #[test]
    fn older_state_is_kept_and_distrusted_ca_replaced_with_leaves() {
        let authority = issue::authority(NOW - jiff::SignedDuration::from_secs(60), &Lifetimes::default()).unwrap();
        let old = with_new_serving(&authority, &leaves()[0].names, NOW, &Lifetimes::default()).unwrap();
        let (data, ..) = ensure(&old, None);
        assert!(old.iter().all(|(entry, it)| data[entry] == *it));
        let (data, _, causes) = ensure(&data, Some(NOW));
        assert_eq!(causes.len(), 4, "{causes:?}");
        assert!(old.iter().all(|(entry, it)| data[entry] != *it));
    }
}
