//! Which endpoints of a Service still serve what another CA has signed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::ListParams;
use kube::{Api, Client};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::Error;
use crate::state::Leaf;

/// How long an endpoint has for a handshake.
const LIMIT: Duration = Duration::from_secs(2);
/// Ports that show the certificate of their Service to everybody: that of the admission service, and that of relays.
const PORTS: [&str; 2] = ["https", "agents"];

/// The first ready endpoint that does not serve a certificate of this CA, and why, as a client sees it that trusts no other.
///
/// # Errors
/// When the endpoints cannot be listed.
pub(crate) async fn lagging(
    client: &Client,
    namespace: &str,
    service: &Leaf,
    authority: &CertificateDer<'static>,
) -> Result<Option<String>, Error> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={}", service.name));
    let failure = |source| Error::ListEndpoints { service: service.name.clone(), source };
    let slices = slices.list(&of_service).await.map_err(failure)?.items;
    let Some(connector) = connector(authority) else { return Ok(Some("the CA cannot be used".to_owned())) };
    let Some(name) = service.names.dns().next().and_then(|it| ServerName::try_from(it.to_owned()).ok()) else {
        return Ok(None);
    };
    let asked = ready(&slices).map(|address| {
        let (connector, name) = (connector.clone(), name.clone());
        async move {
            let handshake = async { connector.connect(name, TcpStream::connect(address).await?).await.map(drop) };
            match timeout(LIMIT, handshake).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{address}: {error}")),
                Err(_) => Some(format!("{address}: no handshake within {LIMIT:?}")),
            }
        }
    });
    Ok(join_all(asked).await.into_iter().flatten().next())
}

fn connector(authority: &CertificateDer<'static>) -> Option<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
}

fn ready(slices: &[EndpointSlice]) -> impl Iterator<Item = SocketAddr> {
    slices.iter().flat_map(|slice| {
        let mut ports =
            slice.ports.iter().flatten().filter(|it| it.name.as_deref().is_some_and(|name| PORTS.contains(&name)));
        let port = ports.find_map(|it| u16::try_from(it.port?).ok());
        let ready = |it: &&Endpoint| it.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true);
        let addresses = slice.endpoints.iter().flatten().filter(ready).flat_map(|it| &it.addresses);
        addresses.filter_map(move |address| Some(SocketAddr::new(address.parse().ok()?, port?)))
    })
}
