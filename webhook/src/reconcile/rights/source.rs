//! Checks that a requester has permission to read the ConfigMaps or the Secret of a source. The
//! credentials in the Secret are sent to the host of the source. Admission also checks this
//! permission, but the permission can be withdrawn after admission.

use std::collections::BTreeSet;

use bundle_api::names::reason;
use bundle_core::diagnostic::{Code, codes};
use bundle_core::doctor::permissions;
use bundle_core::names::KubeName;
use bundle_core::plan::conditions::some_of;
use bundle_core::review::source::PullCredentials;
use bundle_core::review::{Requester, Source};
use bundle_core::rights::AccessReview;

use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::rights::authorize;

/// Maximum number of ConfigMap names in a message.
const MAX_LISTED: usize = 3;

/// Fails if `requester` has no permission to read the ConfigMaps or the Secret of `source`. Also
/// fails if the source is read with the pull secrets of a class, and `requester` has no permission
/// to use this class.
pub(in crate::reconcile) async fn check(
    ctx: &Context,
    requester: &Requester,
    source: &Source,
) -> Result<(), ReconcileError> {
    let (resource, kind, code, names): (_, _, _, BTreeSet<&KubeName>) = match source {
        Source::ConfigMaps(parts) => (
            "configmaps",
            "ConfigMaps",
            codes::review::CONFIGMAP_NOT_ALLOWED,
            parts.iter().map(|part| &part.name).collect(),
        ),
        Source::Image { .. } | Source::Git { .. } | Source::Http { .. } | Source::Upload => (
            "secrets",
            "Secret",
            codes::review::SECRET_NOT_ALLOWED,
            source.credentials().into_iter().collect(),
        ),
    };
    let namespace = &ctx.shared.settings.namespace;
    let mut refused = Vec::new();
    for name in names {
        let question = AccessReview::resource("get", "", resource, Some(namespace), Some(name));
        if !has_permission(ctx, requester, &question).await? {
            refused.push(name);
        }
    }
    if refused.is_empty() {
        return check_class(ctx, requester, source).await;
    }
    let names = some_of(&refused, MAX_LISTED);
    Err(not_allowed(
        code,
        &requester.user,
        namespace,
        &format!("{kind} {names}"),
    ))
}

/// Fails if the pod reads the image `source` with the pull secrets of a class, and `requester` has
/// no permission to use this class.
async fn check_class(
    ctx: &Context,
    requester: &Requester,
    source: &Source,
) -> Result<(), ReconcileError> {
    let Source::Image {
        credentials: PullCredentials::Class(class),
        ..
    } = source
    else {
        return Ok(());
    };
    if !ctx.shared.has_pull_secrets(class) {
        return Ok(());
    }
    let question = permissions::use_of_class(Some(class), &ctx.shared.settings.namespace);
    if has_permission(ctx, requester, &question).await? {
        return Ok(());
    }
    Err(ReconcileError::new(
        codes::review::USE_NOT_ALLOWED,
        reason::UNPACK_FAILED,
        format!(
            "{} has no permission to use provisioner class {class}, whose pull secrets are necessary to read the source: verb use is missing",
            requester.user
        ),
        RetryPolicy::Slowly,
    ))
}

async fn has_permission(
    ctx: &Context,
    requester: &Requester,
    question: &AccessReview,
) -> Result<bool, ReconcileError> {
    let answer = authorize::has_permission(&ctx.own, requester, question).await;
    answer.map_err(|error| ReconcileError {
        reason: reason::UNPACK_FAILED,
        ..error
    })
}

/// Returns the error for a requester without permission to read `objects`.
pub(in crate::reconcile) fn not_allowed(
    code: Code,
    user: &str,
    namespace: &str,
    objects: &str,
) -> ReconcileError {
    ReconcileError::new(
        code,
        reason::UNPACK_FAILED,
        format!(
            "{user} has no permission to read the source: verb get is missing in namespace {namespace} on {objects}"
        ),
        RetryPolicy::Slowly,
    )
}
