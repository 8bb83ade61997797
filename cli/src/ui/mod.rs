//! `ui`: a local page that shows JobSets live.
//!
//! - [`view`] is what the pages show, and what of it has changed: pure,
//! - [`live`] has the boards that all pages share, kept up to date by one watch per kind,
//! - [`explainer`] asks why the JobSets of open pages do not run, and whether a controller leads,
//! - [`server`] serves the pages on 127.0.0.1 and lets in the browser that has the token,
//! - [`browser`] opens the page.
//!
//! The pages' files are in `assets`, as browsers read them: there is no build step.

pub mod browser;
pub mod explainer;
pub mod live;
pub mod server;
pub mod view;

use std::sync::Arc;

use crate::args::UiArgs;
use crate::cluster::{Cluster, FeedScope};
use crate::error::Error;
use crate::exit::Exit;
use crate::mirror::JobSetKey;
use crate::output::Screen;
use live::Live;
use server::{Listening, Session};

/// Serves the pages. The address goes to standard output. Ends by an error: Ctrl-C, or a cluster that cannot be watched.
pub async fn serve(cluster: &Cluster, args: &UiArgs, screen: Screen) -> Result<Exit, Error> {
    let scope = match &args.name {
        // A name that does not exist is an error at once.
        Some(name) => cluster.jobset(name).await.map(|_| FeedScope::Named(name.clone()))?,
        None if args.all_namespaces => FeedScope::AllNamespaces,
        None => FeedScope::Namespace,
    };
    let listening = Listening::on(args.port).await?;
    let session = Session::new(listening.port)?;
    let path =
        args.name.as_ref().map_or_else(|| "/".to_owned(), |name| page(&JobSetKey::new(&cluster.namespace, name)));
    let address = session.address(&path);
    screen.print(&format!("{address}\n"))?;
    let namespace = (scope != FeedScope::AllNamespaces).then(|| cluster.namespace.clone());
    let live = Arc::new(Live::new(namespace));
    if !args.no_browser {
        browser::open(&address);
    }
    tokio::select! {
        error = live::feed(&live, cluster, &scope) => Err(error),
        () = explainer::run(&live, cluster) => Ok(Exit::Ok),
        () = server::serve(listening, session, Arc::clone(&live)) => Ok(Exit::Ok),
    }
}

fn page(key: &JobSetKey) -> String {
    format!("/jobset/{}/{}", key.namespace, key.name)
}
