//! Reads long lists in pages, so that neither the API server nor the plugin holds the text of a whole list.

use std::fmt::Debug;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// Objects per page.
const PAGE: u32 = 500;

/// All objects that the parameters select. If the list expires between two pages (410), it is read once more from the start.
pub(super) async fn all<K>(api: &Api<K>, params: &ListParams, what: &str) -> Result<Vec<K>, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    match from_start(api, params).await {
        Err(kube::Error::Api(status)) if status.code == 410 => {
            from_start(api, params).await.map_err(|error| Error::request(what, error))
        }
        listed => listed.map_err(|error| Error::request(what, error)),
    }
}

async fn from_start<K>(api: &Api<K>, params: &ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.clone().limit(PAGE);
    let mut items = Vec::new();
    loop {
        let page = api.list(&params).await?;
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(items),
        }
    }
}
