//! Access reviews that check if a requester has the permissions for all writes of content. First, a
//! review without a resource name is sent for each kind. Reviews for single resource names are sent
//! only if this review is denied. `bundle_core::rights` derives the reviews from the objects.

mod role_grants;

use std::collections::HashMap;

use bundle_api::names::{self, reason};
use bundle_cluster::access;
use bundle_cluster::account::{self, LostAccount};
use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::review::Requester;
use bundle_core::rights::{self, AccessReview, Target};
use kube::Client;
use tokio::sync::Mutex;

use crate::clients::allowed_reviews::AllowedReviews;
use crate::clients::cluster::ServiceAccount;
use crate::reconcile::api::{object, parallel};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::inventory::present::{KeptObject, SharedPresentObject};
use crate::reconcile::rights::missing_rights::{MAX_PERMISSIONS, MissingRights};

use role_grants::CheckedGrants;

/// Number of access reviews that are in memory at the same time.
const CHUNK: usize = 64;
/// Maximum number of access review results that one reviewer caches.
const MAX_ANSWERS: usize = 1_000;

/// An iterator that creates each access review shortly before it is sent. All reviews together
/// could need too much memory: content can require more reviews than it has bytes.
type AccessReviews<'a> = Box<dyn Iterator<Item = AccessReview> + Send + 'a>;

struct AccessReviewer<'a> {
    client: &'a Client,
    requester: &'a Requester,
    /// Results of access reviews without a resource name. Access reviews with a resource name are
    /// rarely repeated, so their results are not cached.
    answers: Mutex<HashMap<AccessReview, bool>>,
    /// Allowed access reviews of the last second, also of other BundleDeployments. `None` if their
    /// results must not be used.
    recent: Option<&'a AllowedReviews>,
}

/// The access reviews that the API server denied.
struct DeniedReviews {
    questions: Vec<AccessReview>,
    /// True if all access reviews that were sent are denied.
    all_denied: bool,
}

/// Checks all permissions that `requester` needs to write the objects in `subset`. `items` are all
/// objects of the content. `client` sends the access reviews. `installer` is a client with the
/// identity of `account`, and reads the roles that bindings name.
///
/// If `recent` is set, an access review without a resource name is not sent if the API server has
/// allowed it in the last second. The caller must set `recent` only if it then sends a dry run of
/// each object as the requester, without cached results. All other access reviews are always sent.
pub(in crate::reconcile) async fn authorize(
    client: &Client,
    (account, installer): (&ServiceAccount, &Client),
    requester: &Requester,
    (subset, items): (&[&PreparedObject], &[PreparedObject]),
    recent: Option<&AllowedReviews>,
) -> Result<(), ReconcileError> {
    let reviewer = AccessReviewer {
        recent,
        ..AccessReviewer::new(client, requester).await?
    };
    let missing = reviewer
        .missing(account, installer, (subset, items))
        .await
        .map_err(|error| unknown(requester, &error))?;
    missing.check(&requester.user)
}

/// Returns true if `requester` has the permission `question`. If the requester is a ServiceAccount
/// that was deleted or recreated, fails with code `RIGHTS_WITHDRAWN`.
pub(in crate::reconcile) async fn has_permission(
    client: &Client,
    requester: &Requester,
    question: &AccessReview,
) -> Result<bool, ReconcileError> {
    let reviewer = AccessReviewer::new(client, requester).await?;
    let answer = reviewer.is_allowed(question).await;
    answer.map_err(|error| unknown(requester, &error))
}

/// Returns true if an access review denies verb `patch` on this object to `requester`.
pub(in crate::reconcile) async fn is_patch_denied(
    client: &Client,
    requester: &Requester,
    item: &PreparedObject,
) -> Result<bool, ReconcileError> {
    let question = AccessReview::resource(
        "patch",
        &item.id.group,
        &item.kind.resource.plural,
        item.id.namespace.as_deref(),
        Some(&item.id.name),
    );
    Ok(!has_permission(client, requester, &question).await?)
}

/// Returns those of `objects` that `requester` has no permission to delete, and the reason for
/// each. The owner labels of an object have no effect, because every user who can patch the object
/// can write these labels.
pub(in crate::reconcile) async fn undeletable(
    client: &Client,
    requester: &Requester,
    objects: &[SharedPresentObject],
) -> Result<Vec<KeptObject>, ReconcileError> {
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    let kept = |id: &ObjectId, why: String| KeptObject {
        id: id.clone(),
        why: why.into(),
    };
    if let Some(departed) = departed(client, requester).await? {
        let why = departed.to_string();
        let all = objects.iter();
        return Ok(all.map(|present| kept(&present.id, why.clone())).collect());
    }
    let reviewer = AccessReviewer::unchecked(client, requester);
    let mut refused = Vec::new();
    for present in objects {
        let (id, kind) = (&present.id, &present.kind);
        let question = |name| {
            let resource = &kind.resource.plural;
            AccessReview::resource("delete", &id.group, resource, id.namespace.as_deref(), name)
        };
        let may = async {
            Ok(reviewer.is_allowed(&question(None)).await?
                || reviewer.is_allowed(&question(Some(&id.name))).await?)
        };
        if !may.await.map_err(|error| unknown(requester, &error))? {
            let why = format!("{} has no permission to delete it", requester.user);
            refused.push(kept(id, why));
        }
    }
    Ok(refused)
}

/// Returns the error for permissions that could not be checked, because a request failed.
pub(in crate::reconcile) fn unknown(requester: &Requester, error: &kube::Error) -> ReconcileError {
    ReconcileError::new(
        codes::install::RIGHTS_UNKNOWN,
        reason::INSTALL_FAILED,
        format!(
            "cannot check the permissions of {}: {}",
            requester.user,
            object::error_message(error)
        ),
        RetryPolicy::Soon,
    )
}

/// Returns the reason why `requester` no longer exists, if it is a ServiceAccount that was deleted
/// or recreated.
async fn departed(
    client: &Client,
    requester: &Requester,
) -> Result<Option<LostAccount>, ReconcileError> {
    let departed = account::account_loss(client, requester).await;
    departed.map_err(|error| unknown(requester, &error))
}

impl<'a> AccessReviewer<'a> {
    /// Creates a reviewer for `requester`. Fails if the requester is a ServiceAccount that was
    /// deleted or recreated. Access reviews cannot detect this, because they contain only the name
    /// of a ServiceAccount.
    async fn new(client: &'a Client, requester: &'a Requester) -> Result<Self, ReconcileError> {
        match departed(client, requester).await? {
            Some(departed) => Err(ReconcileError::new(
                codes::install::RIGHTS_WITHDRAWN,
                reason::INSTALL_FAILED,
                format!(
                    "{departed}; it requested the content (to make another user the requester, set annotation {} to the value of status.admission.admit)",
                    names::ANNOTATION_ADMIT
                ),
                RetryPolicy::Slowly,
            )),
            None => Ok(Self::unchecked(client, requester)),
        }
    }

    /// Creates a reviewer without checking that the requester still exists.
    fn unchecked(client: &'a Client, requester: &'a Requester) -> Self {
        Self {
            client,
            requester,
            answers: Mutex::default(),
            recent: None,
        }
    }
}

impl AccessReviewer<'_> {
    async fn missing(
        &self,
        account: &ServiceAccount,
        installer: &Client,
        (subset, items): (&[&PreparedObject], &[PreparedObject]),
    ) -> Result<MissingRights, kube::Error> {
        let targets: Vec<Target> = subset
            .iter()
            .map(|item| Target {
                id: item.id.clone(),
                resource: item.kind.resource.plural.clone(),
            })
            .collect();
        let mut missing = MissingRights::default();
        for need in rights::needs(&targets) {
            let general = need.general();
            if self.is_allowed_for_kind(&general).await? {
                continue;
            }
            let by_name = self.denied(Box::new(need.by_name())).await?;
            // If the reviews for all names are denied, the message contains one rule without
            // resource names, because this rule is shorter.
            if by_name.all_denied {
                missing.push(general);
            } else {
                missing.extend(by_name.questions);
            }
            if missing.is_full() {
                return Ok(missing);
            }
        }
        let ids = subset.iter().map(|item| &item.id);
        if let Some(question) = rights::creator_permission(ids, (&account.namespace, &account.name))
            && !self.is_allowed(&question).await?
        {
            missing.push(question);
        }
        let mut grants = CheckedGrants::default();
        for item in subset {
            let live = self.live_role_ref(installer, item).await?;
            let role_ref = live.as_ref().unwrap_or(&item.value["roleRef"]);
            if let Some(grant) = rights::grant(&item.id, role_ref) {
                let namespace = item.id.namespace.as_deref();
                let grant = (grant, namespace);
                self.grant((installer, items), grant, &mut grants, &mut missing)
                    .await?;
            }
            if missing.is_full() {
                break;
            }
        }
        Ok(missing)
    }

    /// Sends the access reviews `questions`. Returns the denied reviews in the same order. Stops
    /// when more than [`MAX_PERMISSIONS`] reviews are denied.
    async fn denied(&self, mut questions: AccessReviews<'_>) -> Result<DeniedReviews, kube::Error> {
        let mut denied = DeniedReviews {
            questions: Vec::new(),
            all_denied: true,
        };
        while denied.questions.len() <= MAX_PERMISSIONS {
            let chunk: Vec<AccessReview> = questions.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                break;
            }
            let answers = parallel::ordered(chunk.into_iter().map(|question| async move {
                let answer = self.is_allowed(&question).await;
                (question, answer)
            }));
            for (question, answer) in answers.await {
                if answer? {
                    denied.all_denied = false;
                } else {
                    denied.questions.push(question);
                }
            }
        }
        Ok(denied)
    }

    /// Returns true if the requester has the permission `general`, which names no object. Uses an
    /// allowed result of the last second if [`Self::recent`] is set. Denied results are not cached.
    async fn is_allowed_for_kind(&self, general: &AccessReview) -> Result<bool, kube::Error> {
        let Some(recent) = self.recent else {
            return self.is_allowed(general).await;
        };
        if recent.contains(self.requester, general) {
            return Ok(true);
        }
        let is_allowed = self.is_allowed(general).await?;
        if is_allowed {
            recent.insert(self.requester, general).await;
        }
        Ok(is_allowed)
    }

    async fn is_allowed(&self, question: &AccessReview) -> Result<bool, kube::Error> {
        if let Some(answer) = self.answers.lock().await.get(question) {
            return Ok(*answer);
        }
        let allowed = access::has_permission(self.client, self.requester, question).await?;
        if matches!(question, AccessReview::Resource { name: None, .. }) {
            let mut answers = self.answers.lock().await;
            if answers.len() < MAX_ANSWERS {
                answers.insert(question.clone(), allowed);
            }
        }
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;

    /// Returns a client of a server that denies access reviews for Secrets and allows all others.
    /// The receiver gets the resource of each access review.
    fn server() -> (Client, mpsc::UnboundedReceiver<String>) {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let (sender, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some((request, reply)) = server.next_request().await {
                let body = request.into_body().collect_bytes().await.unwrap();
                let review: Value = serde_json::from_slice(&body).unwrap();
                let resource = &review["spec"]["resourceAttributes"]["resource"];
                let resource = resource.as_str().unwrap().to_owned();
                let status = json!({"allowed": resource != "secrets"});
                sender.send(resource).unwrap();
                let answer = json!({"spec": {}, "status": status}).to_string();
                reply.send_response(Response::new(Body::from(answer.into_bytes())));
            }
        });
        (Client::new(service, "default"), received)
    }

    #[tokio::test]
    async fn allowed_review_for_a_kind_is_not_repeated_within_a_second_and_a_denied_one_is() {
        let (client, mut received) = server();
        let ana = Requester {
            user: "ana".to_owned(),
            ..Requester::default()
        };
        let questions = ["configmaps", "secrets"]
            .map(|resource| AccessReview::resource("create", "", resource, Some("team-a"), None));
        let recent = AllowedReviews::default();
        for recent in [Some(&recent), Some(&recent), None] {
            let reviewer = AccessReviewer {
                recent,
                ..AccessReviewer::unchecked(&client, &ana)
            };
            for (question, expected) in questions.iter().zip([true, false]) {
                let is_allowed = reviewer.is_allowed_for_kind(question).await;
                assert_eq!(is_allowed.unwrap(), expected);
            }
        }
        let mut sent = Vec::new();
        while let Ok(resource) = received.try_recv() {
            sent.push(resource);
        }
        // The second reviewer sends only the denied review. The third reviewer sends both.
        assert_eq!(
            sent,
            ["configmaps", "secrets", "secrets", "configmaps", "secrets"]
        );
    }
}
