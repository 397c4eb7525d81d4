//! Access reviews for everything that content does, as its requester. They ask the general question
//! first. `bundle_core::rights` derives the questions from objects.

use std::collections::{BTreeSet, HashMap, HashSet};

use bundle_api::names::{self, reason};
use bundle_cluster::access;
use bundle_cluster::account::{self, DepartedAccount};
use bundle_core::diagnostic::codes;
use bundle_core::object::{Manifest, ObjectId};
use bundle_core::plan::conditions::some_of;
use bundle_core::review::Requester;
use bundle_core::rights::{self, Grant, Question, RoleRef, Rule, Target};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::Client;
use kube::core::discovery::ApiResource;
use tokio::sync::Mutex;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::inventory::present::{KeptObject, Present};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Maximum number of rules in a message.
const MAX_RULES: usize = 40;

struct AccessReviewer<'a> {
    own: &'a Client,
    requester: &'a Requester,
    answers: Mutex<HashMap<Question, bool>>,
}

/// Checks all permissions that `requester` needs for `subset`, a part of the objects `items` of
/// content. `own` sends the access reviews. `installer`, a client of `account`, reads the roles
/// that bindings name.
pub(in crate::reconcile) async fn authorize(
    own: &Client,
    (account, installer): (&ServiceAccount, &Client),
    requester: &Requester,
    (subset, items): (&[&PreparedObject], &[PreparedObject]),
) -> Result<(), ReconcileError> {
    let reviewer = AccessReviewer::new(own, requester).await?;
    let missing = reviewer
        .missing(account, installer, (subset, items))
        .await
        .map_err(|error| unknown(requester, &error))?;
    missing.check(&requester.user)
}

/// The permissions that a requester lacks for content.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::reconcile) struct MissingRights {
    pub(in crate::reconcile) questions: Vec<Question>,
    /// Roles that grant more than the requester has, and whose rules the requester has no
    /// permission to read.
    unreadable_roles: BTreeSet<String>,
}

impl MissingRights {
    fn is_empty(&self) -> bool {
        self.questions.is_empty() && self.unreadable_roles.is_empty()
    }

    fn extend(&mut self, other: Self) {
        self.questions.extend(other.questions);
        self.unreadable_roles.extend(other.unreadable_roles);
    }

    /// Returns an error that lists the missing permissions of `user`.
    pub(in crate::reconcile) fn check(&self, user: &str) -> Result<(), ReconcileError> {
        if self.is_empty() {
            return Ok(());
        }
        Err(ReconcileError::new(
            codes::install::NOT_AUTHORIZED,
            reason::INSTALL_FAILED,
            format!(
                "{user} lacks permissions for this content; missing: {} (grant them, or use a class that allows the content)",
                self.text(user)
            ),
            RetryPolicy::Slowly,
        ))
    }

    fn text(&self, user: &str) -> String {
        let mut parts = Vec::new();
        if !self.questions.is_empty() {
            parts.push(rules(&self.questions));
        }
        if !self.unreadable_roles.is_empty() {
            let roles: Vec<&String> = self.unreadable_roles.iter().collect();
            parts.push(format!(
                "the permissions of these roles, which exceed those of {user}, and whose rules {user} has no permission to read: {}",
                some_of(&roles, MAX_RULES)
            ));
        }
        parts.join("; ")
    }
}

/// Formats missing permissions as RBAC rules, at most [`MAX_RULES`] of them.
pub(in crate::reconcile) fn rules(missing: &[Question]) -> String {
    let rules = rights::compact(missing);
    let mut text: Vec<String> = rules
        .iter()
        .take(MAX_RULES)
        .map(ToString::to_string)
        .collect();
    if rules.len() > MAX_RULES {
        text.push(format!("and {} more", rules.len() - MAX_RULES));
    }
    text.join("; ")
}

/// Returns true if `requester` has this permission. Fails with withdrawn permissions if it is a
/// ServiceAccount that was deleted or recreated.
pub(in crate::reconcile) async fn has_permission(
    own: &Client,
    requester: &Requester,
    question: &Question,
) -> Result<bool, ReconcileError> {
    let reviewer = AccessReviewer::new(own, requester).await?;
    let answer = reviewer.is_allowed(question).await;
    answer.map_err(|error| unknown(requester, &error))
}

/// Returns true if the access reviews deny `requester` to patch this object.
pub(in crate::reconcile) async fn is_patch_denied(
    own: &Client,
    requester: &Requester,
    item: &PreparedObject,
) -> Result<bool, ReconcileError> {
    let question = Question::resource(
        "patch",
        &item.id.group,
        &item.kind.resource.plural,
        item.id.namespace.as_deref(),
        Some(&item.id.name),
    );
    Ok(!has_permission(own, requester, &question).await?)
}

/// Returns those of `objects` that `requester` has no permission to delete, with the reason. Their
/// labels prove nothing, because every user who can patch an object can write them.
pub(in crate::reconcile) async fn undeletable(
    own: &Client,
    requester: &Requester,
    objects: &[Present],
) -> Result<Vec<KeptObject>, ReconcileError> {
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    let kept = |id: &ObjectId, why: String| KeptObject {
        id: id.clone(),
        why: why.into(),
    };
    if let Some(departed) = departed(own, requester).await? {
        let why = departed.to_string();
        let all = objects.iter();
        return Ok(all.map(|present| kept(&present.id, why.clone())).collect());
    }
    let reviewer = AccessReviewer::unchecked(own, requester);
    let mut refused = Vec::new();
    for present in objects {
        let (id, kind) = (&present.id, &present.kind);
        let question = |name| {
            let resource = &kind.resource.plural;
            Question::resource("delete", &id.group, resource, id.namespace.as_deref(), name)
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

/// Returns the error for an access review that the API server did not answer.
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

/// Returns the reason if `requester` is a ServiceAccount that was deleted or recreated.
async fn departed(
    own: &Client,
    requester: &Requester,
) -> Result<Option<DepartedAccount>, ReconcileError> {
    let departed = account::departed(own, requester).await;
    departed.map_err(|error| unknown(requester, &error))
}

impl<'a> AccessReviewer<'a> {
    /// Returns the reviewer for `requester`. Fails if it is a ServiceAccount that was deleted or
    /// recreated: access reviews and dry runs go by its name.
    async fn new(own: &'a Client, requester: &'a Requester) -> Result<Self, ReconcileError> {
        match departed(own, requester).await? {
            Some(departed) => Err(ReconcileError::new(
                codes::install::RIGHTS_WITHDRAWN,
                reason::INSTALL_FAILED,
                format!(
                    "{departed}; it requested the content (to make another user the requester, set annotation {} to the value of status.admission.admit)",
                    names::ANNOTATION_ADMIT
                ),
                RetryPolicy::Slowly,
            )),
            None => Ok(Self::unchecked(own, requester)),
        }
    }

    /// Returns the reviewer for a requester that exists.
    fn unchecked(own: &'a Client, requester: &'a Requester) -> Self {
        Self {
            own,
            requester,
            answers: Mutex::default(),
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
            if !self
                .all(std::slice::from_ref(&need.general))
                .await?
                .is_empty()
            {
                let refused = self.all(&need.by_name).await?;
                // If no name is allowed, one general rule is shorter.
                if refused.len() == need.by_name.len() {
                    missing.questions.push(need.general);
                } else {
                    missing.questions.extend(refused);
                }
            }
        }
        let ids = subset.iter().map(|item| &item.id);
        if let Some(question) = rights::made_as(ids, (&account.namespace, &account.name)) {
            missing.questions.extend(self.all(&[question]).await?);
        }
        for item in subset {
            let mut object = manifest(item);
            self.complete(installer, item, &mut object).await?;
            if let Some(grant) = rights::grant(&object) {
                missing.extend(self.grant(installer, items, &object, grant).await?);
            }
        }
        Ok(missing)
    }

    /// Adds the current role to a binding that names none, as server-side apply does.
    async fn complete(
        &self,
        installer: &Client,
        item: &PreparedObject,
        object: &mut Manifest,
    ) -> Result<(), kube::Error> {
        let is_binding = object.id.group == RBAC
            && matches!(
                object.id.kind.as_str(),
                "RoleBinding" | "ClusterRoleBinding"
            );
        if !is_binding || object.value["roleRef"]["name"].is_string() {
            return Ok(());
        }
        let namespace = item.id.namespace.as_deref();
        match object::read(installer, &item.kind, namespace, &item.id.name).await {
            Ok(Some(live)) => {
                object.value["roleRef"] = live.data["roleRef"].clone();
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) if object::is_forbidden(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn grant(
        &self,
        installer: &Client,
        items: &[PreparedObject],
        object: &Manifest,
        grant: Grant,
    ) -> Result<MissingRights, kube::Error> {
        let (shortcut, role, namespace) = match grant {
            Grant::Role {
                escalate,
                namespace,
                ..
            } => {
                let role = RoleRef {
                    kind: object.id.kind.clone(),
                    name: object.id.name.clone(),
                    namespace: namespace.clone(),
                };
                (escalate, role, namespace)
            }
            Grant::Binding {
                bind,
                role,
                namespace,
            } => (bind, role, namespace),
        };
        if self.all(std::slice::from_ref(&shortcut)).await?.is_empty() {
            return Ok(MissingRights::default());
        }
        let own = own_role(items, &role);
        let refused = match self.rules(installer, own, &role).await? {
            Some(rules) if rights::can_be_asked(&rules) => {
                self.all(&questions(&rules, namespace.as_deref())).await?
            }
            // A role that cannot be read, or is too large to check, requires the permission to bind
            // it.
            _ if own.is_some() => {
                return Ok(MissingRights {
                    questions: vec![shortcut],
                    ..MissingRights::default()
                });
            }
            _ => vec![shortcut],
        };
        self.without_unreadable_rules(own, &role, namespace.as_deref(), refused)
            .await
    }

    /// Removes the questions that follow only from the role on the cluster, if the requester has no
    /// permission to read that role.
    async fn without_unreadable_rules(
        &self,
        own: Option<&PreparedObject>,
        role: &RoleRef,
        namespace: Option<&str>,
        refused: Vec<Question>,
    ) -> Result<MissingRights, kube::Error> {
        // The questions that follow from the role in the content.
        let stated: HashSet<Question> = own
            .into_iter()
            .flat_map(|own| questions(&rights::rules_after(Some(&own.value), None), namespace))
            .collect();
        let (mut denied, foreign): (Vec<_>, Vec<_>) = refused
            .into_iter()
            .partition(|question| stated.contains(question));
        let mut unreadable_roles = BTreeSet::new();
        if !foreign.is_empty() {
            let resource = format!("{}s", role.kind.to_lowercase());
            let of_role = role.namespace.as_deref();
            let read = Question::resource("get", RBAC, &resource, of_role, Some(&role.name));
            if self.is_allowed(&read).await? {
                denied.extend(foreign);
            } else {
                let place = of_role.map(|namespace| format!("{namespace}/"));
                let place = place.unwrap_or_default();
                unreadable_roles.insert(format!("{} {place}{}", role.kind, role.name));
            }
        }
        Ok(MissingRights {
            questions: denied,
            unreadable_roles,
        })
    }

    /// Returns the union of the rules of a role in the content and on the cluster. `None` if the
    /// role does not exist or cannot be read.
    async fn rules(
        &self,
        installer: &Client,
        own: Option<&PreparedObject>,
        role: &RoleRef,
    ) -> Result<Option<Vec<Rule>>, kube::Error> {
        if role.name.is_empty() {
            return Ok(None);
        }
        let kind = Kind {
            resource: if role.namespace.is_some() {
                ApiResource::erase::<Role>(&())
            } else {
                ApiResource::erase::<ClusterRole>(&())
            },
            namespaced: role.namespace.is_some(),
        };
        let namespace = role.namespace.as_deref();
        let found = object::read(installer, &kind, namespace, &role.name).await;
        match found.map(|role| role.map(|role| role.data)) {
            Ok(live) if live.is_none() && own.is_none() => Ok(None),
            Ok(live) => Ok(Some(rights::rules_after(
                own.map(|own| &own.value),
                live.as_ref(),
            ))),
            // The role cannot be read.
            Err(error) if object::is_forbidden(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the denied `questions`, in their order.
    async fn all(&self, questions: &[Question]) -> Result<Vec<Question>, kube::Error> {
        let answers: Vec<_> = crate::reconcile::api::parallel::ordered(
            questions
                .iter()
                .map(|question| async move { (question, self.is_allowed(question).await) }),
        )
        .await;
        let mut refused = Vec::new();
        for (question, answer) in answers {
            if !answer? {
                refused.push(question.clone());
            }
        }
        Ok(refused)
    }

    async fn is_allowed(&self, question: &Question) -> Result<bool, kube::Error> {
        if let Some(answer) = self.answers.lock().await.get(question) {
            return Ok(*answer);
        }
        let allowed = access::has_permission(self.own, self.requester, question).await?;
        self.answers.lock().await.insert(question.clone(), allowed);
        Ok(allowed)
    }
}

/// Returns the role if it is one of `items`.
fn own_role<'a>(items: &'a [PreparedObject], role: &RoleRef) -> Option<&'a PreparedObject> {
    items.iter().find(|item| {
        item.id.group == RBAC
            && item.id.kind == role.kind
            && item.id.name == role.name
            && item.id.namespace == role.namespace
    })
}

fn questions(rules: &[Rule], namespace: Option<&str>) -> Vec<Question> {
    let questions = rules.iter().flat_map(|rule| rule.questions(namespace));
    questions.collect()
}

fn manifest(item: &PreparedObject) -> Manifest {
    Manifest {
        id: item.id.clone(),
        value: item.value.clone(),
        file: String::new(),
        line: 0,
    }
}
