//! The Bundles that receive uploads. The content of a Bundle is installed with the permissions of
//! its requester. Therefore only two kinds of users can upload the content: the requester, and
//! users who can impersonate the requester. A generated Bundle is installed with the permissions of
//! the requester of the template. Therefore a user who uploads the content of a generated Bundle
//! must also be the requester of the template, or be able to impersonate this requester.

use std::sync::Arc;

use bundle_cluster::access;
use bundle_core::content::ContentId;
use bundle_core::names::KubeName;
use bundle_core::plan::bundle::upload;
use bundle_core::plan::conditions::some_of;
use bundle_core::review::seal::deployment_name;
use bundle_core::review::{CheckedBundleSpec, Kind, Requester};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::ResourceExt as _;

use crate::reconcile::context::{ClassLookup, Context, class_name};
use crate::reconcile::seal;
use crate::reconcile::served::ServedContent;
use crate::uploads::target::{TargetError, UploadTarget, UploadTargets};

/// Maximum number of group names in a message.
const MAX_NAMED_GROUPS: usize = 3;

impl UploadTargets for ServedContent {
    fn find<'a>(
        &'a self,
        bundle: &'a KubeName,
        caller: &'a Requester,
    ) -> BoxFuture<'a, Result<UploadTarget, TargetError>> {
        find(&self.0, bundle, caller).boxed()
    }

    fn uploaded(&self, bundle: &KubeName, target: &UploadTarget) {
        let Self(ctx) = self;
        ctx.failed_unpacks.remove(&target.uid);
        ctx.unpacking.restart(bundle);
        if let Some(deployment) = &target.deployment {
            // The BundleDeployment may wait for content that is missing in the cache, so it is
            // reconciled.
            ctx.refetching.wake(deployment);
        }
    }
}

async fn find(
    ctx: &Context,
    name: &KubeName,
    caller: &Requester,
) -> Result<UploadTarget, TargetError> {
    let failed = |error| TargetError::Api(name.clone(), error);
    let not_reconciled = |why: String| TargetError::NotReconciled(name.clone(), why);
    let object = ctx.get(&ctx.bundles, name).await.map_err(failed)?;
    let object = object.ok_or_else(|| TargetError::NoBundle(name.clone()))?;
    let spec = CheckedBundleSpec::parse(&object.data["spec"]);
    let spec = spec.map_err(|findings| not_reconciled(findings.to_string()))?;
    upload::check_source(&spec.source)?;
    let vouched = seal::confirmed_facts(ctx, &object, Kind::Bundle).map_err(not_reconciled)?;
    let class = class_name(&object);
    let ClassLookup::Managed(_) = ctx.class(class).await.map_err(failed)? else {
        let why = format!(
            "ProvisionerClass {class} does not exist, is invalid or names another provisioner"
        );
        return Err(not_reconciled(why));
    };
    let mut requesters = vec![vouched.parts.template];
    if let Some(generated_for) = &vouched.generated_for {
        let requester = template_requester(ctx, name, &generated_for.uid).await?;
        // In most cases, one user requested both the Bundle and the template.
        if !requesters.contains(&requester) {
            requesters.push(requester);
        }
    }
    // The class of the Bundle does not matter for this check. A BundleDeployment of another class
    // can install the content, and that class may require an approval by a person other than the
    // requester.
    for requester in &requesters {
        if !can_act_as(ctx, caller, requester).await.map_err(failed)? {
            return Err(other_requester(name, caller, requester));
        }
    }
    let generated_for = vouched.generated_for.as_ref();
    let deployment = generated_for.and_then(|_| deployment_name(name));
    let sealed = seal::content(ctx, &object);
    let key = ctx.shared.stamp_key();
    let is_cached = sealed.as_ref().is_some_and(|sealed| {
        let id = ContentId::sealed(&spec.source, sealed);
        ctx.store.open(&id, key.bytes()).is_some()
    });
    Ok(UploadTarget {
        uid: object.uid().unwrap_or_default(),
        unpacked: sealed.map(|sealed| sealed.digest),
        is_cached,
        deployment: deployment.map(str::to_owned),
    })
}

/// Returns the current requester of the template from which `bundle` was generated. `uid` is the
/// uid of the BundleDeployment. The requester of the Bundle can be another user, if an
/// administrator later admitted the BundleDeployment again.
async fn template_requester(
    ctx: &Context,
    bundle: &KubeName,
    uid: &str,
) -> Result<Arc<Requester>, TargetError> {
    let not_reconciled = |why: String| TargetError::NotReconciled(bundle.clone(), why);
    let missing = || {
        not_reconciled("the BundleDeployment that it was generated for does not exist".to_owned())
    };
    let name = deployment_name(bundle).ok_or_else(missing)?;
    let found = ctx.get(&ctx.deployments, name).await;
    let found = found.map_err(|error| TargetError::Api(bundle.clone(), error))?;
    let deployment = found
        .filter(|found| found.metadata.uid.as_deref() == Some(uid))
        .ok_or_else(missing)?;
    let vouched = seal::confirmed_facts(ctx, &deployment, Kind::BundleDeployment);
    let vouched =
        vouched.map_err(|why| not_reconciled(format!("BundleDeployment {name}: {why}")))?;
    Ok(vouched.parts.template)
}

fn other_requester(bundle: &KubeName, caller: &Requester, requester: &Requester) -> TargetError {
    let (bundle, user) = (bundle.clone(), caller.user.clone());
    if upload::is_same_user(caller, requester) {
        let groups = upload::missing_groups(caller, requester);
        return TargetError::OtherGroups {
            bundle,
            user,
            groups: some_of(&groups, MAX_NAMED_GROUPS),
        };
    }
    TargetError::OtherRequester {
        bundle,
        user,
        requester: requester.user.clone(),
    }
}

/// Returns true if `caller` is the same user as `requester` and has all groups of `requester`. Also
/// returns true if `caller` can impersonate `requester` with these groups.
async fn can_act_as(
    ctx: &Context,
    caller: &Requester,
    requester: &Requester,
) -> Result<bool, kube::Error> {
    let Some(questions) = upload::required_impersonation(caller, requester) else {
        return Ok(false);
    };
    for question in questions {
        if !access::has_permission(&ctx.own, caller, &question).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
