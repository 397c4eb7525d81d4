//! Access to the server of a repository: its Secret, the addresses of its host, and a git folder.

use std::sync::Arc;

use bundle_core::names::KubeName;
use bundle_core::review::source::Auth;
use bundle_core::review::source::git::GitUrl;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::{GitSourceError, credentials, failed, host};
use crate::budget::Share;
use crate::clients::git::{GitFolder, GitProgram, GitRemote, ServerVerification};
use crate::clients::names::{self, LimitedResolver};
use crate::shared::Shared;

/// Data for access to the server of a repository. The credentials and the addresses of the host are
/// checked before git contacts the server.
pub(in crate::sources) struct GitAccess {
    pub(super) program: Arc<GitProgram>,
    pub(super) resolver: LimitedResolver,
    pub(super) secrets: Api<Secret>,
    /// Secret with credentials, in the system namespace.
    pub(super) secret: Option<KubeName>,
    /// True if the class allows addresses that are not public.
    pub(super) allows_private: bool,
    pub(super) verification: ServerVerification,
    pub(super) requester: String,
}

impl GitAccess {
    /// Creates the settings for a Bundle of a class. `is_insecure` is true if the class allows the
    /// host without verification of its certificate or host key.
    pub(in crate::sources) fn new(
        shared: &Shared,
        (class, is_insecure): (&str, bool),
        requester: &str,
        auth: &Auth,
    ) -> Self {
        // If the class is unknown, no private address is allowed.
        let class = shared.classes.get(class);
        let allows_private = matches!(class.as_deref(), Some(Ok(class)) if class.private_addresses);
        Self {
            program: shared.git(),
            resolver: shared.resolver().clone(),
            secrets: Api::namespaced(shared.client(), &shared.settings.namespace),
            secret: auth.secret.clone(),
            allows_private,
            verification: if is_insecure && auth.insecure_skip_verify {
                ServerVerification::Skipped
            } else {
                ServerVerification::Required
            },
            requester: requester.to_owned(),
        }
    }

    /// Creates a folder for a repository in `slot`, or waits for a slot for a limited time if
    /// `slot` is `None`. Fails if the class does not allow the addresses of the host.
    pub(super) async fn folder(
        &self,
        repository: &GitUrl,
        slot: Option<Share>,
    ) -> Result<GitFolder, GitSourceError> {
        let (transport, secret) = (repository.transport(), self.secret.as_ref());
        let verification = self.verification;
        let credentials =
            credentials::read(&self.secrets, (transport, verification), secret).await?;
        let resolving = host::addresses(&self.resolver, repository.host(), self.allows_private);
        let addresses = names::for_requester(&self.requester, resolving).await?;
        let remote = GitRemote {
            url: repository.clone(),
            addresses,
            credentials,
            verification,
        };
        let (program, requester) = (&self.program, self.requester.as_str());
        let folder = match slot {
            Some(slot) => program.repository_in_slot(slot, requester, remote).await,
            None => program.repository(requester, remote).await,
        };
        folder.map_err(|error| failed("cannot prepare", repository, error))
    }
}
