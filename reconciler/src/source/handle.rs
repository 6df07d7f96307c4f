//! What others may ask of a source.

use std::sync::Arc;

use denv_schema::api::SourceView;
use denv_schema::change::{ChangeRequest, ChangeView};
use denv_schema::tree::Files;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::approval::{Approval, ApprovalError};
use super::branch::Author;
use super::config::SourceConfig;
use super::mirror::{Mirror, MirrorError};
use super::publication::{Permission, Publication, PublicationError};

pub enum Request {
    /// A look now; answered when it is done.
    Look(oneshot::Sender<()>),
    Approve(Approval),
    Publish(Box<Publication>),
}

/// The source has ended.
#[derive(Debug, thiserror::Error)]
#[error("the control plane is stopping")]
pub struct Gone;

/// Whom to ask about a source.
#[derive(Clone)]
pub struct SourceHandle {
    config: Arc<SourceConfig>,
    requests: mpsc::Sender<Request>,
    hooked: Arc<Notify>,
    view: watch::Receiver<SourceView>,
}

impl SourceHandle {
    pub(super) fn new(
        config: SourceConfig,
        requests: mpsc::Sender<Request>,
        hooked: Arc<Notify>,
        view: watch::Receiver<SourceView>,
    ) -> Self {
        SourceHandle { config: Arc::new(config), requests, hooked, view }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    pub fn config(&self) -> &SourceConfig {
        &self.config
    }

    pub fn changes(&self) -> watch::Receiver<SourceView> {
        self.view.clone()
    }

    pub fn view(&self) -> SourceView {
        self.view.borrow().clone()
    }

    /// Has the remote looked at now, and waits until that is done.
    pub async fn look(&self) -> Result<(), Gone> {
        let (sender, done) = oneshot::channel();
        self.requests.send(Request::Look(sender)).await.map_err(|_| Gone)?;
        done.await.map_err(|_| Gone)
    }

    /// Has the remote looked at soon. Any number of these together is one look.
    pub fn hook(&self) {
        self.hooked.notify_one();
    }

    /// Has the revision that waits for it accepted.
    pub async fn approve(&self, commit: String, who: String) -> Result<Result<(), ApprovalError>, Gone> {
        let (answer, answered) = oneshot::channel();
        let approval = Approval { commit, who, answer };
        self.requests.send(Request::Approve(approval)).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }

    /// The files of the revision in force; none before there is one.
    pub async fn files_in_force(&self) -> Result<Files, MirrorError> {
        let Some(accepted) = self.view().accepted else { return Ok(Files::new()) };
        let config = Arc::clone(&self.config);
        super::blocking(move || Ok(Mirror::open(&config)?.files(&accepted.commit, &config.folder)?.0)).await
    }

    /// Has manifests changed in the repository, as a commit of `author`, if `permission` allows what that comes to.
    pub async fn publish(
        &self,
        request: ChangeRequest,
        author: Author,
        permission: Permission,
    ) -> Result<Result<ChangeView, PublicationError>, Gone> {
        let (answer, answered) = oneshot::channel();
        let publication = Box::new(Publication { request, author, permission, answer });
        self.requests.send(Request::Publish(publication)).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }
}
