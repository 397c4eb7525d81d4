//! Commands for an administrator that permit the pod to impersonate a ServiceAccount.

use bundle_core::names::{KubeName, NameKind};

use super::ServiceAccount;

/// If `error` is the rejection of the impersonation of `account`, adds commands that permit it to
/// the message. Returns all other errors unchanged.
///
/// The Role in the shipped manifests permits only the impersonation of the installer's
/// ServiceAccount. Each other ServiceAccount needs a Role in its own namespace.
pub fn with_missing_right(mut error: kube::Error, account: &ServiceAccount) -> kube::Error {
    if let kube::Error::Api(status) = &mut error
        && let Some(hint) = missing_right(&status.message, account)
    {
        status.message = format!("{}; {hint}", status.message);
    }
    error
}

/// Returns commands that permit the impersonation of `account`. Returns `None` if `message` is not
/// the API server's rejection of this impersonation.
pub fn missing_right(message: &str, account: &ServiceAccount) -> Option<String> {
    let (_, rest) = message.split_once("is forbidden: User \"system:serviceaccount:")?;
    // The verb in the message is `impersonate`. In newer API servers the verb can also be
    // `impersonate-on:serviceaccount:create`.
    let (pod, _) = rest.split_once("\" cannot impersonate")?;
    let (pod_namespace, pod_name) = pod.split_once(':')?;
    let pod_namespace = KubeName::parse(NameKind::Label, pod_namespace).ok()?;
    let pod_name = KubeName::parse(NameKind::Subdomain, pod_name).ok()?;
    let ServiceAccount { namespace, name } = account;
    Some(format!(
        "grant the pod permission to impersonate this ServiceAccount: `kubectl create role \
        bundle-impersonator-{name} -n {namespace} --verb=impersonate --resource=serviceaccounts \
        --resource-name={name}` and `kubectl create rolebinding bundle-impersonator-{name} -n \
        {namespace} --role=bundle-impersonator-{name} --serviceaccount={pod_namespace}:{pod_name}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_impersonation_names_the_role_to_create() {
        let account = ServiceAccount::parse("team-a", "deployer").unwrap();
        for refused in [
            r#"serviceaccounts "deployer" is forbidden: User "system:serviceaccount:bundle-system:bundle-webhook" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "team-a""#,
            r#"selfsubjectaccessreviews.authorization.k8s.io is forbidden: User "system:serviceaccount:bundle-system:bundle-webhook" cannot impersonate-on:serviceaccount:create resource "selfsubjectaccessreviews""#,
        ] {
            let hint = missing_right(refused, &account).unwrap();
            assert!(hint.contains("kubectl create role bundle-impersonator-deployer -n team-a --verb=impersonate --resource=serviceaccounts --resource-name=deployer`"));
            assert!(hint.contains("--serviceaccount=bundle-system:bundle-webhook`"));
        }
        assert_eq!(
            missing_right("configmaps \"a\" is forbidden: no", &account),
            None
        );
    }
}
