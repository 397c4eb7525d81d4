//! Access reviews: permission checks by the authorizers of the API server.

use bundle_core::review::Requester;
use bundle_core::rights::AccessReview;
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, TokenReview, TokenReviewSpec, UserInfo,
};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use kube::Client;
use kube::api::{Api, PostParams};

/// Returns true if `requester` has the permission that `question` describes. `client` needs verb
/// `create` on `subjectaccessreviews`.
pub async fn has_permission(
    client: &Client,
    requester: &Requester,
    question: &AccessReview,
) -> Result<bool, kube::Error> {
    let (resource_attributes, non_resource_attributes) = attributes(question);
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(requester.user.clone()),
            uid: Some(requester.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(requester.groups.clone()),
            extra: Some(requester.extra.clone()),
            resource_attributes,
            non_resource_attributes,
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(is_allowed(answer.status.as_ref()))
}

/// Returns true if the identity of `client` has the permission that `question` describes.
pub async fn has_own_permission(
    client: &Client,
    question: &AccessReview,
) -> Result<bool, kube::Error> {
    let (resource_attributes, non_resource_attributes) = attributes(question);
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes,
            non_resource_attributes,
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(is_allowed(answer.status.as_ref()))
}

/// Returns the identity of `client`, in the form of the requester in an admission request. The user
/// name is empty if the API server returns no user name.
pub async fn own_identity(client: &Client) -> Result<Requester, kube::Error> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let answer = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = answer.status.and_then(|status| status.user_info);
    Ok(requester(user.unwrap_or_default()))
}

/// Returns the identity of a bearer token for the API server, or `None` if the token is not valid.
/// `client` needs verb `create` on `tokenreviews`.
pub async fn identity_of_token(
    client: &Client,
    token: &str,
) -> Result<Option<Requester>, kube::Error> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let api: Api<TokenReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    let status = answer.status.unwrap_or_default();
    let is_valid =
        status.authenticated == Some(true) && status.error.is_none_or(|it| it.is_empty());
    let identity = requester(status.user.unwrap_or_default());
    Ok((is_valid && !identity.user.is_empty()).then_some(identity))
}

fn requester(user: UserInfo) -> Requester {
    Requester {
        user: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }
}

/// Returns true if the API server allows the request. `denied` overrides `allowed`.
fn is_allowed(status: Option<&SubjectAccessReviewStatus>) -> bool {
    status.is_some_and(|status| status.allowed && status.denied != Some(true))
}

fn attributes(
    question: &AccessReview,
) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    match question {
        AccessReview::Resource {
            verb,
            group,
            resource,
            namespace,
            name,
        } => {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            let attributes = ResourceAttributes {
                verb: Some(verb.clone()),
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                namespace: Some(namespace.clone()),
                name: name.clone(),
                ..ResourceAttributes::default()
            };
            (Some(attributes), None)
        }
        AccessReview::Path { verb, path } => {
            let attributes = NonResourceAttributes {
                verb: Some(verb.clone()),
                path: Some(path.clone()),
            };
            (None, Some(attributes))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Checks `question` for user ana on a server that returns `status`. Returns the result and the
    /// spec of the review that was sent.
    async fn asked(question: &AccessReview, status: Value) -> (bool, Value) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let answering = tokio::spawn(async move {
            let (request, reply) = server.next_request().await.unwrap();
            assert_eq!(
                request.uri().path(),
                "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            );
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut sent: Value = serde_json::from_slice(&body).unwrap();
            let answer = json!({"spec": {}, "status": status}).to_string();
            reply.send_response(Response::new(Body::from(answer.into_bytes())));
            sent["spec"].take()
        });
        let ana = Requester {
            user: "ana".to_owned(),
            groups: vec!["dev".to_owned()],
            extra: [("scopes".to_owned(), vec!["a".to_owned()])].into(),
            ..Requester::default()
        };
        let client = Client::new(service, "default");
        let allowed = has_permission(&client, &ana, question).await.unwrap();
        (allowed, answering.await.unwrap())
    }

    #[tokio::test]
    async fn review_names_all_that_is_known_of_the_requester_and_one_subresource() {
        let question = AccessReview::resource("get", "", "pods/log", Some("team-a"), Some("web"));
        let (allowed, spec) = asked(&question, json!({"allowed": true})).await;
        assert!(allowed);
        assert_eq!(
            spec,
            json!({
                "user": "ana", "groups": ["dev"], "extra": {"scopes": ["a"]},
                "resourceAttributes": {
                    "verb": "get", "group": "", "resource": "pods", "subresource": "log",
                    "namespace": "team-a", "name": "web",
                },
            })
        );
        let path = AccessReview::Path {
            verb: "get".to_owned(),
            path: "/metrics".to_owned(),
        };
        let (_, spec) = asked(&path, json!({"allowed": true})).await;
        assert_eq!(
            spec["nonResourceAttributes"],
            json!({"verb": "get", "path": "/metrics"})
        );
    }

    #[tokio::test]
    async fn denial_outweighs_an_answer_that_allows() {
        let question = AccessReview::resource("use", "", "pods", None, None);
        for status in [
            json!({"allowed": false}),
            json!({"allowed": true, "denied": true}),
            Value::Null,
        ] {
            assert!(!asked(&question, status).await.0);
        }
    }
}
