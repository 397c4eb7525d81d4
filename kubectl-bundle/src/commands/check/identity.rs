//! Who the API server takes us for, and what it would let us do.
//! Not here: what follows from it.

use bundle_core::diagnostic::codes;
use bundle_core::review::{Answer, Requester};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};

use super::unavailable::unavailable;
use crate::cluster::Cluster;
use crate::failure::Outcome;

/// The user, as admission would see it.
pub(super) async fn whoami(cluster: &Cluster) -> Outcome<Requester> {
    let api: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    let answer = cluster
        .ask(api.create(&PostParams::default(), &SelfSubjectReview::default()))
        .await?;
    let user = answer
        .status
        .and_then(|status| status.user_info)
        .unwrap_or_default();
    Ok(Requester {
        user: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    })
}

/// "May I do that?"
pub(super) struct Question(ResourceAttributes);

impl Question {
    /// A verb of ours on a class. Asked in the namespace of the pod, as the webhook asks: a RoleBinding there will do.
    pub(super) fn on_class(verb: &str, class: &str, system_namespace: &str) -> Self {
        Self(ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(bundle_api::names::GROUP.to_owned()),
            resource: Some("provisionerclasses".to_owned()),
            namespace: Some(system_namespace.to_owned()),
            name: Some(class.to_owned()),
            ..ResourceAttributes::default()
        })
    }

    /// Reading a ConfigMap.
    pub(super) fn read_config_map(namespace: &str, name: &str) -> Self {
        Self(ResourceAttributes {
            verb: Some("get".to_owned()),
            resource: Some("configmaps".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ResourceAttributes::default()
        })
    }

    /// Acting as a ServiceAccount.
    pub(super) fn impersonate(namespace: &str, name: &str) -> Self {
        Self(ResourceAttributes {
            verb: Some("impersonate".to_owned()),
            resource: Some("serviceaccounts".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ResourceAttributes::default()
        })
    }
}

/// Asks it.
pub(super) async fn may(cluster: &Cluster, question: Question) -> Answer {
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(question.0),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    match cluster
        .ask(api.create(&PostParams::default(), &review))
        .await
    {
        Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => Answer::Yes,
        Ok(_) => Answer::No,
        Err(failure) => Answer::Unavailable(unavailable(
            codes::review::RIGHTS_UNKNOWN,
            "the API server does not say what you may do",
            &failure,
        )),
    }
}
