//! Reads Events about what belongs to a JobSet.

use jobset_store::Kind;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;

use super::Actor;
use crate::shell::error::{ApplyError, code};

impl Actor {
    /// The Events about this object that `more` of a field selector matches. `None` if they may not be read.
    pub(super) async fn events_about(
        &self,
        kind: Kind,
        name: &str,
        uid: &str,
        more: &str,
    ) -> Result<Option<Vec<Event>>, ApplyError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.key.namespace);
        let about = format!("regarding.kind={},regarding.name={name},regarding.uid={uid}{more}", kind.name());
        match events.list(&ListParams::default().fields(&about)).await {
            Ok(found) => Ok(Some(found.items)),
            Err(error) if code(&error) == Some(403) => Ok(None),
            Err(source) => {
                let object = format!("{}/{name}", self.key.namespace);
                Err(ApplyError::Api { verb: "read Events of", kind, object, source })
            }
        }
    }
}
