//! Acceptance of the deletion of a BundleDeployment. A deletion is accepted if admission reviewed
//! the deletion, or if a user admitted the object later. The inventory records the acceptance.
//! `bundle_core::plan::removal` contains the rule. `teardown` removes the objects.

use bundle_api::names;
use bundle_core::diagnostic::codes;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::removal::{ObservedDeletion, REMOVING, RemovalFailure};
use bundle_core::review::Kind;
use bundle_core::review::stamp::admit_token;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::seal;
use crate::reconcile::status::condition_set;

/// Records in `inventory` that the deletion of `object` is accepted. Fails if the deletion cannot
/// be accepted.
pub(in crate::reconcile) async fn accept(
    object: &DynamicObject,
    ctx: &Context,
    inventory: &mut Inventory,
) -> Result<(), ReconcileError> {
    if inventory.is_deletion_accepted {
        return Ok(());
    }
    let Some(deleted) = &object.metadata.deletion_timestamp else {
        return Err(RemovalFailure::not_reviewed().into());
    };
    let registration = &ctx.shared.settings.registration;
    let enforced_since = ctx
        .shared
        .registrations
        .enforced_since(&ctx.own, registration)
        .await
        .map_err(|error| {
            let text = format!(
                "cannot check yet whether the webhook reviewed the deletion: {}",
                crate::chain(&error)
            );
            ReconcileError::new(
                codes::cluster::UNREACHABLE,
                REMOVING,
                text,
                RetryPolicy::Soon,
            )
        })?;
    let deletion = ObservedDeletion {
        deleted: deleted.0.as_millisecond(),
        is_recorded: false,
        enforced_since: enforced_since.map(jiff::Timestamp::as_millisecond),
        admitted: admitted(object, ctx),
    };
    let now = condition_set::now().as_millisecond();
    deletion.check(now, &admit_command(object, ctx))?;
    inventory.is_deletion_accepted = true;
    Ok(())
}

/// Returns the time of the write that admitted the current spec, in milliseconds since 1970. The
/// time is read from the admission stamp or the seal.
fn admitted(object: &DynamicObject, ctx: &Context) -> Option<i64> {
    let vouched = seal::confirmed_facts(ctx, object, Kind::BundleDeployment).ok()?;
    vouched.admitted_at
}

fn token(object: &DynamicObject, ctx: &Context) -> String {
    admit_token(
        ctx.shared.stamp_key().bytes(),
        Kind::BundleDeployment.as_str(),
        object.metadata.name.as_deref().unwrap_or_default(),
        object.metadata.uid.as_deref().unwrap_or_default(),
        &object.data["spec"],
    )
}

/// Returns the command with which a user becomes the requester of `object`, in backticks. If the
/// annotation already has the required value, a first command removes the annotation. The reason is
/// that admission ignores an existing value, because its author is unknown.
pub(in crate::reconcile) fn admit_command(object: &DynamicObject, ctx: &Context) -> String {
    let token = token(object, ctx);
    let annotation = names::ANNOTATION_ADMIT;
    let annotate = format!("kubectl annotate bundledeployment {}", object.name_any());
    let set = format!("`{annotate} {annotation}={token} --overwrite`");
    if object.annotations().get(annotation) == Some(&token) {
        format!("`{annotate} {annotation}-` and then {set}")
    } else {
        set
    }
}
