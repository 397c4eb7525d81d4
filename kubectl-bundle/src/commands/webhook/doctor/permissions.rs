//! Checks of permissions by access reviews.

use bundle_api::ProvisionerClass;
use bundle_cluster::{access, parallel};
use bundle_core::doctor::permissions::{self, CallerPermissions, VERBS};
use bundle_core::doctor::{CheckResult, Observed};
use bundle_core::review::Requester;
use bundle_core::rights::AccessReview;
use bundle_core::service_account::ServiceAccount;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use super::observer::Observer;
use crate::commands::webhook::install::manifests::{DEPLOYMENT, EmbeddedManifest};

/// Maximum number of classes that are examined.
const CLASSES: u32 = 100;

/// Checks that the pod of bundle-webhook has every permission that the roles in the embedded
/// manifests grant.
pub(super) async fn pod(
    observer: &Observer,
    manifests: &[EmbeddedManifest],
    namespace: &str,
) -> Vec<CheckResult> {
    let account = format!("serviceaccount {namespace}/{DEPLOYMENT}");
    let questions: Vec<AccessReview> = manifests
        .iter()
        .filter(|manifest| {
            matches!(manifest.kind(), "Role" | "ClusterRole") && manifest.name() == DEPLOYMENT
        })
        .flat_map(|role| permissions::questions(&role.object, role.namespace()))
        .collect();
    let user = ServiceAccount::parse(namespace, DEPLOYMENT).map(|account| account.user_name());
    let requester = Requester {
        user: user.unwrap_or_default(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        ..Requester::default()
    };
    let client = observer.client();
    let answers = async {
        let ask = |question: &AccessReview| {
            let (client, requester, question) =
                (client.clone(), requester.clone(), question.clone());
            observer.request(async move {
                let is_allowed = access::has_permission(&client, &requester, &question).await?;
                Ok((question, is_allowed))
            })
        };
        let Some((first, others)) = questions.split_first() else {
            return vec![permissions::pod(&account, Observed::Found(Vec::new()))];
        };
        // The first access review fails if the user has no permission to create access reviews. In
        // this case, no further access review is sent.
        let mut answered = vec![ask(first).await];
        if matches!(answered[0], Observed::Found(_)) {
            answered.extend(parallel::ordered(others.iter().map(ask)).await);
        }
        vec![permissions::pod(&account, Observed::all(answered))]
    };
    observer.check("permissions", &account, answers).await
}

/// Checks the permissions of the caller. `namespace` is the system namespace.
pub(super) async fn caller(observer: &Observer, namespace: &str) -> Vec<CheckResult> {
    const SUBJECT: &str = "your user";
    let client = observer.client();
    let work = async {
        let user = match observer.request(access::own_identity(&client)).await {
            Observed::Found(requester) if !requester.user.is_empty() => requester.user,
            _ => SUBJECT.to_owned(),
        };
        let permissions = caller_permissions(observer, namespace).await;
        vec![permissions::caller(&user, permissions)]
    };
    observer.check("caller", SUBJECT, work).await
}

async fn caller_permissions(observer: &Observer, namespace: &str) -> Observed<CallerPermissions> {
    let client = observer.client();
    let ask = |question: AccessReview| {
        let client = client.clone();
        observer.request(async move { access::has_own_permission(&client, &question).await })
    };
    let mut permissions = CallerPermissions::default();
    for verb in VERBS {
        let answers = parallel::ordered(verb.questions().into_iter().map(ask)).await;
        match Observed::all(answers) {
            Observed::Found(answers) if answers.iter().all(|is_allowed| *is_allowed) => {
                permissions.verbs.push(verb.verb);
            }
            Observed::Found(_) => permissions.denied.push(verb.verb),
            other => return other.map(|_| CallerPermissions::default()),
        }
    }
    permissions.classes = usable_classes(observer, namespace, &ask).await;
    Observed::Found(permissions)
}

/// Returns the classes that the caller can use; `None` if the classes are unknown.
async fn usable_classes<F>(
    observer: &Observer,
    namespace: &str,
    ask: &(impl Fn(AccessReview) -> F + Sync),
) -> Option<Vec<String>>
where
    F: Future<Output = Observed<bool>> + Send,
{
    let api: Api<ProvisionerClass> = Api::all(observer.client());
    let parameters = ListParams::default().limit(CLASSES);
    let Observed::Found(list) = observer.request(api.list_metadata(&parameters)).await else {
        return None;
    };
    let names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
    if let Observed::Found(true) = ask(permissions::use_of_class(None, namespace)).await {
        return Some(names);
    }
    let questions = names
        .iter()
        .map(|name| ask(permissions::use_of_class(Some(name), namespace)));
    let answers = parallel::ordered(questions.collect::<Vec<_>>()).await;
    let usable = names
        .into_iter()
        .zip(answers)
        .filter(|(_, answer)| matches!(answer, Observed::Found(true)))
        .map(|(name, _)| name);
    Some(usable.collect())
}
